"""The native functions that read records: frames of TFRecord files with their checksums, the wire format of
`tf.train.Example` and `tf.train.SequenceExample` (proto3), whole blocks per call; and rows of PNG.

Python source as in `driver_source`, which explains it. Each function returns an int64 and reads its arguments as words.
Callers leave 8 readable bytes after the data, as four bytes are loaded as a word.

Sources: TensorFlow, core/lib/io/record_writer.h (a frame is the length as u64, its masked CRC-32C, the data, the data's
masked CRC-32C, all little-endian); core/example/example.proto and feature.proto; the encoding of Protocol Buffers.
"""

from __future__ import annotations

from hloom.runtime.driver_source import NativeFunction, words

# Why `hloom_frames` stopped at its end position.
NEEDS_MORE, FULL, BAD_LENGTH, BAD_DATA = 0, 1, 2, 3

# Words of the state of `hloom_frames`: the data and its size, where to resume, frames found, capacity, the frames
# (offset and length of each), the CRC table, 1 for hardware checksums, 1 for checksums at all, why it stopped.
FRAMES_DATA, FRAMES_SIZE, FRAMES_AT, FRAMES_COUNT, FRAMES_LIMIT = 0, 1, 2, 3, 4
FRAMES_OUT, FRAMES_TABLE, FRAMES_HARDWARE, FRAMES_VERIFY, FRAMES_STATUS = 5, 6, 7, 8, 9
FRAMES_WORDS = 10

# Words of a feature: name and its length, kind, values (bytes for BYTES) per example or -1 where that varies, address
# of the column and bytes per row in it, whether it may be absent, and a word that parsing writes to.
FEATURE_NAME, FEATURE_LENGTH, FEATURE_KIND, FEATURE_COUNT = 0, 1, 2, 3
FEATURE_OUT, FEATURE_STRIDE, FEATURE_OPTIONAL, FEATURE_SEEN = 4, 5, 6, 7
FEATURE_WORDS = 8

BYTES, FLOAT, INT64 = 1, 2, 3  # kinds: the field numbers in feature.proto
STEPS = 4  # the kind of a FeatureList, of which only the location is read
# What is wrong with an example.
MALFORMED, MISSING, WRONG_KIND, WRONG_COUNT = 1, 2, 3, 4
# Words of a report: the feature's index, the error code, the value found.
REPORT_FEATURE, REPORT_CODE, REPORT_FOUND, REPORT_SCRATCH = 0, 1, 2, 3
REPORT_WORDS = 12

MASK_DELTA = 0xA282EAD8  # of TensorFlow's masked checksums
LOW = 0xFFFFFFFF
VARINT, WORD64, LENGTH, WORD32 = 0, 1, 2, 5  # wire types
FIRST, SECOND = 1 << 3 | LENGTH, 2 << 3 | LENGTH  # tags: fields 1 and 2 with a payload
FIELD_TAG, FIELD_START, FIELD_SIZE = 1, 2, 3  # words that `hloom_field` stores

_CONSTANTS = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}

# table: 256 words for a byte, then 7 * 256 for a byte that 1 to 7 others follow.
CRC = """
def hloom_crc32c(table, data, size, hardware):
    crc = LOW
    end = data + size
    if hardware != 0:
        while data + 8 <= end:
            crc = crc32c_word(crc, load(data, 0))
            data += 8
        while data < end:
            crc = crc32c_byte(crc, load_byte(data))
            data += 1
    else:
        while data + 8 <= end:
            word = load(data, 0) ^ crc
            crc = (load(table, 7 * 256 + (word & 255)) ^ load(table, 6 * 256 + ((word >> 8) & 255))
                   ^ load(table, 5 * 256 + ((word >> 16) & 255)) ^ load(table, 4 * 256 + ((word >> 24) & 255))
                   ^ load(table, 3 * 256 + ((word >> 32) & 255)) ^ load(table, 2 * 256 + ((word >> 40) & 255))
                   ^ load(table, 256 + ((word >> 48) & 255)) ^ load(table, (word >> 56) & 255))
            data += 8
        while data < end:
            crc = load(table, (crc ^ load_byte(data)) & 255) ^ (crc >> 8)
            data += 1
    return crc ^ LOW
"""

MASKED = """
def hloom_masked(table, data, size, hardware):
    crc = hloom_crc32c(table, data, size, hardware)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & LOW
"""

FRAMES = """
def hloom_frames(state):
    data = load(state, FRAMES_DATA)
    size = load(state, FRAMES_SIZE)
    at = load(state, FRAMES_AT)
    limit = load(state, FRAMES_LIMIT)
    out = load(state, FRAMES_OUT)
    table = load(state, FRAMES_TABLE)
    hardware = load(state, FRAMES_HARDWARE)
    verify = load(state, FRAMES_VERIFY)
    count = 0
    status = NEEDS_MORE
    while True:
        if count == limit:
            status = FULL
            break
        if at + 12 > size:
            break
        length = load(data + at, 0)
        if verify != 0 and hloom_masked(table, data + at, 8, hardware) != load(data + at + 8, 0) & LOW:
            status = BAD_LENGTH
            break
        if length < 0:
            status = BAD_LENGTH
            break
        if length > size - at - 16:
            break
        if verify != 0:
            start = data + at + 12
            if hloom_masked(table, start, length, hardware) != load(start + length, 0) & LOW:
                status = BAD_DATA
                break
        store(out, 2 * count, at + 12)
        store(out, 2 * count + 1, length)
        count += 1
        at += 16 + length
    store(state, FRAMES_AT, at)
    store(state, FRAMES_COUNT, count)
    store(state, FRAMES_STATUS, status)
    return count
"""

# The first position from `at` on where the length of a frame and its checksum agree and the length is not beyond
# `longest`; size - 11 where there is none.
RESYNCHRONIZE = """
def hloom_resynchronize(data, size, at, table, hardware, longest):
    while at + 12 <= size:
        length = load(data + at, 0)
        if 0 <= length and length <= longest:
            if hloom_masked(table, data + at, 8, hardware) == load(data + at + 8, 0) & LOW:
                return at
        at += 1
    return at
"""

# Reads a varint at `at` and stores it at `out`; returns the position after it, 0 if it does not end before `end`.
VARINT_TEXT = """
def hloom_varint(at, end, out):
    value = 0
    shift = 0
    while at < end and shift < 70:
        byte = load_byte(at)
        at += 1
        if shift < 64:
            value |= (byte & 127) << shift
        if byte < 128:
            store(out, 0, value)
            return at
        shift += 7
    return 0
"""

# The position after the field at `at`; 0 if it is malformed. Stores at `out` the value (of a VARINT field), the tag,
# the start and length of the payload (0 and 0 for scalar fields).
FIELD = """
def hloom_field(at, end, out):
    at = hloom_varint(at, end, out)
    if at == 0:
        return 0
    tag = load(out, 0)
    wire = tag & 7
    start = 0
    size = 0
    if wire == VARINT:
        at = hloom_varint(at, end, out)
    elif wire == LENGTH:
        at = hloom_varint(at, end, out)
        size = load(out, 0)
        if at == 0 or size < 0 or size > end - at:
            return 0
        start = at
        at += size
    else:
        width = 0
        if wire == WORD64:
            width = 8
        if wire == WORD32:
            width = 4
        if width == 0 or width > end - at:
            return 0
        at += width
    store(out, FIELD_TAG, tag)
    store(out, FIELD_START, start)
    store(out, FIELD_SIZE, size)
    return at
"""

# Numbers in the payload of an Int64List or a FloatList, or texts in that of a BytesList, stored at `out` (texts as
# position and length), as far as `limit` allows. How many there are, -1 where the payload is malformed.
LIST = """
def hloom_list(kind, at, end, out, limit, scratch):
    count = 0
    while at < end:
        at = hloom_field(at, end, scratch)
        if at == 0:
            return -1
        tag = load(scratch, FIELD_TAG)
        start = load(scratch, FIELD_START)
        size = load(scratch, FIELD_SIZE)
        wire = tag & 7
        if tag >> 3 != 1:
            continue
        if wire == LENGTH:
            if kind == BYTES:
                if count < limit:
                    store(out, 2 * count, start)
                    store(out, 2 * count + 1, size)
                count += 1
            elif kind == FLOAT:
                if size & 3 != 0:
                    return -1
                fits = min(size >> 2, max(0, limit - count))
                copy_bytes(out + 4 * count, start, 4 * fits)
                count += size >> 2
            else:
                while start < at:
                    start = hloom_varint(start, at, scratch)
                    if start == 0:
                        return -1
                    if count < limit:
                        store(out, count, load(scratch, 0))
                    count += 1
        elif kind == INT64 and wire == VARINT:
            if count < limit:
                store(out, count, load(scratch, 0))
            count += 1
        elif kind == FLOAT and wire == WORD32:
            if count < limit:
                copy_bytes(out + 4 * count, at - 4, 4)
            count += 1
        else:
            return -1
    return count
"""

# One feature of one example into its column. value, end: the payload of `Feature`. 0 or what is wrong.
FEATURE = """
def hloom_feature(feature, row, at, end, report):
    scratch = report + 8 * REPORT_SCRATCH
    kind = 0
    start = 0
    stop = 0
    if load(feature, FEATURE_KIND) == STEPS:
        out = load(feature, FEATURE_OUT) + row * load(feature, FEATURE_STRIDE)
        store(feature, FEATURE_SEEN, row)
        store(out, 0, at)
        store(out, 1, end - at)
        return 0
    while at < end:
        at = hloom_field(at, end, scratch)
        if at == 0:
            return MALFORMED
        tag = load(scratch, FIELD_TAG)
        number = tag >> 3
        if tag & 7 == LENGTH and number >= BYTES and number <= INT64:
            kind = number
            start = load(scratch, FIELD_START)
            stop = at
    if kind == 0:
        return 0
    if kind != load(feature, FEATURE_KIND):
        store(report, REPORT_FOUND, kind)
        return WRONG_KIND
    count = load(feature, FEATURE_COUNT)
    out = load(feature, FEATURE_OUT) + row * load(feature, FEATURE_STRIDE)
    store(feature, FEATURE_SEEN, row)
    if count < 0:
        store(out, 0, start)
        store(out, 1, stop - start)
        return 0
    if kind == BYTES:
        found = hloom_list(kind, start, stop, scratch, 1, scratch + 16)
        if found != 1:
            if found < 0:
                return MALFORMED
            store(report, REPORT_FOUND, -1 - found)
            return WRONG_COUNT
        size = load(scratch, 1)
        if size != count:
            store(report, REPORT_FOUND, size)
            return WRONG_COUNT
        copy_bytes(out, load(scratch, 0), size)
        return 0
    found = hloom_list(kind, start, stop, out, count, scratch)
    if found < 0:
        return MALFORMED
    if found != count:
        store(report, REPORT_FOUND, found)
        return WRONG_COUNT
    return 0
"""

# Which feature has the name of `size` bytes at `at`; `guess` is looked at first. -1 for none.
FIND = """
def hloom_find(features, count, at, size, guess):
    for turn in range(count):
        index = guess + turn
        if index >= count:
            index -= count
        feature = features + 8 * FEATURE_WORDS * index
        if load(feature, FEATURE_LENGTH) == size:
            name = load(feature, FEATURE_NAME)
            same = 0
            while same < size and load_byte(name + same) == load_byte(at + same):
                same += 1
            if same == size:
                return index
    return -1
"""

# One entry of the map of features. The index of the feature that was read (-1: of no interest), -2 where it is wrong.
ENTRY = """
def hloom_entry(features, count, row, at, end, guess, report):
    scratch = report + 8 * REPORT_SCRATCH
    name = 0
    size = 0
    value = 0
    stop = 0
    while at < end:
        at = hloom_field(at, end, scratch)
        if at == 0:
            store(report, REPORT_CODE, MALFORMED)
            return -2
        tag = load(scratch, FIELD_TAG)
        if tag == FIRST:
            name = load(scratch, FIELD_START)
            size = load(scratch, FIELD_SIZE)
        if tag == SECOND:
            value = load(scratch, FIELD_START)
            stop = at
    index = hloom_find(features, count, name, size, guess)
    if index >= 0 and value != 0:
        wrong = hloom_feature(features + 8 * FEATURE_WORDS * index, row, value, stop, report)
        if wrong != 0:
            store(report, REPORT_FEATURE, index)
            store(report, REPORT_CODE, wrong)
            return -2
    return index
"""

# Examples first to last - 1 of `frames` into rows row, row + 1, ... of the columns. group: the tag of the field with
# their map, FIRST for the features of an Example and the context of a SequenceExample, SECOND for the feature lists of
# the latter. Returns how many were read; when fewer, the report describes the error in the next one (feature -1: in the
# example itself).
EXAMPLES = """
def hloom_examples(data, frames, first, last, row, features, count, group, report):
    scratch = report + 8 * REPORT_SCRATCH
    done = 0
    for record in range(first, last):
        for index in range(count):
            store(features, FEATURE_WORDS * index + FEATURE_SEEN, -1)
        store(report, REPORT_FEATURE, -1)
        store(report, REPORT_CODE, 0)
        at = data + load(frames, 2 * record)
        end = at + load(frames, 2 * record + 1)
        guess = 0
        while at < end:
            at = hloom_field(at, end, scratch)
            if at == 0:
                store(report, REPORT_CODE, MALFORMED)
                return done
            if load(scratch, FIELD_TAG) != group:
                continue
            entry = load(scratch, FIELD_START)
            while entry < at:
                entry = hloom_field(entry, at, scratch)
                if entry == 0:
                    store(report, REPORT_CODE, MALFORMED)
                    return done
                if load(scratch, FIELD_TAG) != FIRST:
                    continue
                index = hloom_entry(features, count, row + done, load(scratch, FIELD_START), entry, guess, report)
                if index == -2:
                    return done
                if index >= 0:
                    guess = index + 1
                    if guess == count:
                        guess = 0
        for index in range(count):
            feature = features + 8 * FEATURE_WORDS * index
            if load(feature, FEATURE_SEEN) < 0:
                if load(feature, FEATURE_OPTIONAL) == 0:
                    store(report, REPORT_FEATURE, index)
                    store(report, REPORT_CODE, MISSING)
                    return done
        done += 1
    return done
"""

# The lists of a column of varying length. places: address and bytes of each payload (0: absent). out 0: only counts.
# Returns how many rows were read; when fewer, the next one is malformed.
LISTS = """
def hloom_lists(kind, places, rows, counts, out, width, report):
    scratch = report + 8 * REPORT_SCRATCH
    for row in range(rows):
        start = load(places, 2 * row)
        limit = 0
        if out != 0:
            limit = load(counts, row)
        found = 0
        if start != 0:
            found = hloom_list(kind, start, start + load(places, 2 * row + 1), out, limit, scratch)
        if found < 0:
            return row
        if out == 0:
            store(counts, row, found)
        else:
            out += found * width
    return rows
"""

# Reads the steps of a FeatureList, each a Feature given by address and bytes, into rows of a column. Returns how many
# were read; when fewer, the report describes the error in the next one.
STEPS_TEXT = """
def hloom_steps(feature, places, rows, report):
    for row in range(rows):
        start = load(places, 2 * row)
        store(feature, FEATURE_SEEN, -1)
        wrong = hloom_feature(feature, row, start, start + load(places, 2 * row + 1), report)
        if wrong == 0 and load(feature, FEATURE_SEEN) < 0:
            wrong = MISSING
        if wrong != 0:
            store(report, REPORT_FEATURE, 0)
            store(report, REPORT_CODE, wrong)
            return row
    return rows
"""

# Takes the filters off the rows of a PNG: each is a byte with the kind of its filter and `stride` bytes. step: bytes of
# a pixel. How many rows were read; the next one has an unknown filter. Source: ISO/IEC 15948 (PNG), clause 9.
PNG_ROWS = """
def hloom_png_rows(data, out, rows, stride, step):
    for row in range(rows):
        kind = load_byte(data)
        data += 1
        above = out - stride
        if kind == 0 or (kind == 2 and row == 0):
            copy_bytes(out, data, stride)
        elif kind == 1 or (kind == 4 and row == 0):
            copy_bytes(out, data, step)
            for k in range(step, stride):
                store_byte(out + k, load_byte(data + k) + load_byte(out + k - step))
        elif kind == 2:
            for k in range(stride):
                store_byte(out + k, load_byte(data + k) + load_byte(above + k))
        elif kind == 3:
            for k in range(stride):
                left = 0
                up = 0
                if k >= step:
                    left = load_byte(out + k - step)
                if row > 0:
                    up = load_byte(above + k)
                store_byte(out + k, load_byte(data + k) + ((left + up) >> 1))
        elif kind == 4:
            for k in range(step):
                store_byte(out + k, load_byte(data + k) + load_byte(above + k))
            for k in range(step, stride):
                left = load_byte(out + k - step)
                up = load_byte(above + k)
                corner = load_byte(above + k - step)
                to_left = abs(up - corner)
                to_up = abs(left - corner)
                to_corner = abs(left + up - 2 * corner)
                nearest = corner
                if to_left <= to_up and to_left <= to_corner:
                    nearest = left
                elif to_up <= to_corner:
                    nearest = up
                store_byte(out + k, load_byte(data + k) + nearest)
        else:
            return row
        data += stride
        out += stride
    return rows
"""

_CRC = {"hloom_crc32c": (words(4), "s64"), "hloom_masked": (words(4), "s64")}
_READ = {"hloom_varint": (words(3), "s64"), "hloom_field": (words(3), "s64"), "hloom_list": (words(6), "s64")}
_EXAMPLE = {"hloom_feature": (words(5), "s64"), "hloom_find": (words(5), "s64"), "hloom_entry": (words(7), "s64")}


def _function(name: str, text: str, parameters: int, calls=None, exported: bool = False) -> NativeFunction:
    return NativeFunction(name, text, words(parameters), "s64", calls or {}, exported, _CONSTANTS)


FUNCTIONS = (
    _function("hloom_crc32c", CRC, 4, exported=True),
    _function("hloom_masked", MASKED, 4, _CRC, exported=True),
    _function("hloom_frames", FRAMES, 1, _CRC, exported=True),
    _function("hloom_resynchronize", RESYNCHRONIZE, 6, _CRC, exported=True),
    _function("hloom_varint", VARINT_TEXT, 3),
    _function("hloom_field", FIELD, 3, _READ),
    _function("hloom_list", LIST, 6, _READ),
    _function("hloom_feature", FEATURE, 5, _READ),
    _function("hloom_find", FIND, 5),
    _function("hloom_entry", ENTRY, 7, _READ | _EXAMPLE),
    _function("hloom_examples", EXAMPLES, 9, _READ | _EXAMPLE, exported=True),
    _function("hloom_lists", LISTS, 7, _READ, exported=True),
    _function("hloom_png_rows", PNG_ROWS, 5, exported=True),
    _function("hloom_steps", STEPS_TEXT, 4, _READ | _EXAMPLE, exported=True),
)
