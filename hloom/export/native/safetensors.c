/* Files in the safetensors format: eight bytes with the size of a JSON header, the header, the arrays. Every size is
   checked against the file's before memory is allocated, and nothing of a file is a path or is executed.
   Source: huggingface.co/docs/safetensors, "Format". */

enum { MOST_HEADER = 100 << 20, MOST_DEPTH = 8 };

typedef struct { const char *at, *end; } json;

static void json_space(json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r')) j->at++;
}

static int json_is(json *j, char c) {
  json_space(j);
  if (j->at >= j->end || *j->at != c) return 0;
  j->at++;
  return 1;
}

/* A string without its quotes; escapes stay as they are, because no name that is looked for has one. */
static int json_string(json *j, const char **text, size_t *size) {
  if (!json_is(j, '"')) return 0;
  *text = j->at;
  while (j->at < j->end && *j->at != '"') {
    if (*j->at == '\\') j->at++;
    j->at++;
  }
  if (j->at >= j->end) return 0;
  *size = (size_t)(j->at - *text);
  j->at++;
  return 1;
}

static int json_number(json *j, int64_t *number) {
  json_space(j);
  int64_t value = 0;
  int digits = 0;
  for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++, digits++) {
    if (value > (INT64_MAX - 9) / 10) return 0;
    value = value * 10 + (*j->at - '0');
  }
  *number = value;
  return digits > 0;
}

static int json_skip(json *j, int depth) {
  const char *text;
  size_t size;
  json_space(j);
  if (depth > MOST_DEPTH || j->at >= j->end) return 0;
  if (*j->at == '"') return json_string(j, &text, &size);
  if (*j->at == '{' || *j->at == '[') {
    const int object = *j->at++ == '{';
    const char close = object ? '}' : ']';
    if (json_is(j, close)) return 1;
    do {
      if (object && (!json_string(j, &text, &size) || !json_is(j, ':'))) return 0;
      if (!json_skip(j, depth + 1)) return 0;
    } while (json_is(j, ','));
    return json_is(j, close);
  }
  const char *start = j->at;
  while (j->at < j->end && (*j->at == '-' || *j->at == '+' || *j->at == '.' || (*j->at >= '0' && *j->at <= '9') ||
                            (*j->at >= 'a' && *j->at <= 'z') || *j->at == 'E'))
    j->at++;
  return j->at > start;
}

static const char *stored_dtype(hloom_dtype dtype) {
  static const char *const names[] = {"",    "BOOL", "I8",  "I16",  "I32", "I64", "U8",  "U16",
                                      "U32", "U64",  "F16", "BF16", "F32", "F64", "C64", "C128"};
  return names[dtype];
}

static int same(const char *text, size_t size, const char *name) {
  return strlen(name) == size && !memcmp(text, name, size);
}

/* One entry of the header: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}. */
typedef struct {
  const char *dtype;
  size_t dtype_size;
  int32_t rank;
  int64_t shape[32], begin, end;
} file_entry;

static int read_entry(json *j, file_entry *e) {
  int fields = 0;
  if (!json_is(j, '{')) return 0;
  do {
    const char *key;
    size_t size;
    if (!json_string(j, &key, &size) || !json_is(j, ':')) return 0;
    if (same(key, size, "dtype")) {
      if (!json_string(j, &e->dtype, &e->dtype_size)) return 0;
      fields |= 1;
    } else if (same(key, size, "shape")) {
      e->rank = 0;
      if (!json_is(j, '[')) return 0;
      if (!json_is(j, ']')) {
        do {
          if (e->rank == 32 || !json_number(j, &e->shape[e->rank++])) return 0;
        } while (json_is(j, ','));
        if (!json_is(j, ']')) return 0;
      }
      fields |= 2;
    } else if (same(key, size, "data_offsets")) {
      if (!json_is(j, '[') || !json_number(j, &e->begin) || !json_is(j, ',') || !json_number(j, &e->end) ||
          !json_is(j, ']'))
        return 0;
      fields |= 4;
    } else if (!json_skip(j, 0)) {
      return 0;
    }
  } while (json_is(j, ','));
  return json_is(j, '}') && fields == 7;
}

static int64_t file_size(FILE *file) {
#ifdef _WIN32
  if (_fseeki64(file, 0, SEEK_END)) return -1;
  const int64_t size = _ftelli64(file);
  return _fseeki64(file, 0, SEEK_SET) ? -1 : size;
#else
  if (fseeko(file, 0, SEEK_END)) return -1;
  const int64_t size = (int64_t)ftello(file);
  return fseeko(file, 0, SEEK_SET) ? -1 : size;
#endif
}

static int file_seek(FILE *file, int64_t place) {
#ifdef _WIN32
  return _fseeki64(file, place, SEEK_SET);
#else
  return fseeko(file, (off_t)place, SEEK_SET);
#endif
}

/* Reads arrays by their names into the places; each must be there, with its dtype, shape and bytes. */
static hloom_status read_file(const hloom_options *o, const char *path, const hloom_value *values, int32_t count,
                              unsigned char *const *places) {
  FILE *file = fopen(path, "rb");
  if (!file) return fail(HLOOM_ERROR_FILE, "%s: it cannot be opened (%s)", path, strerror(errno));
  hloom_status status = HLOOM_OK;
  char *header = 0;
  int64_t *begins = 0;
  unsigned char head[8];
  const int64_t size = file_size(file);
  uint64_t length = 0;
  if (size < 8 || fread(head, 1, 8, file) != 8) {
    status = fail(HLOOM_ERROR_FILE, "%s: it has %lld bytes, which is too short for a safetensors file", path,
                  (long long)size);
  } else {
    for (int k = 0; k < 8; k++) length |= (uint64_t)head[k] << 8 * k;
    if (length > MOST_HEADER || (int64_t)length > size - 8)
      status = fail(HLOOM_ERROR_FILE, "%s: its header would have %llu bytes, the file has %lld: damaged or truncated", path,
                    (unsigned long long)length, (long long)size);
  }
  const int64_t data = 8 + (int64_t)length;
  if (!status && (!(header = take(o, (size_t)length, 8)) || !(begins = take(o, (size_t)count * 8, 8))))
    status = fail(HLOOM_ERROR_MEMORY, "%s: no memory for its header", path);
  if (!status && fread(header, 1, (size_t)length, file) != length)
    status = fail(HLOOM_ERROR_FILE, "%s: its header cannot be read", path);
  if (!status) {
    for (int32_t k = 0; k < count; k++) begins[k] = -1;
    json j = {header, header + length};
    int good = json_is(&j, '{');
    if (good && !json_is(&j, '}')) {
      do {
        const char *name;
        size_t name_size;
        good = json_string(&j, &name, &name_size) && json_is(&j, ':');
        if (!good) break;
        int32_t found = -1;
        for (int32_t k = 0; k < count && found < 0; k++)
          if (same(name, name_size, values[k].name)) found = k;
        if (found < 0) {
          good = json_skip(&j, 0);
          continue;
        }
        file_entry e;
        if (!(good = read_entry(&j, &e))) break;
        const hloom_value *v = &values[found];
        int fits = same(e.dtype, e.dtype_size, stored_dtype(v->dtype)) && e.rank == v->rank;
        for (int32_t axis = 0; fits && axis < e.rank; axis++) fits = e.shape[axis] == v->shape[axis];
        if (!fits) {
          status = fail(HLOOM_ERROR_FILE, "%s: '%s' has another dtype or shape than the program's", path, v->name);
        } else if (e.begin < 0 || e.end < e.begin || e.end - e.begin != v->bytes || e.end > size - data) {
          status = fail(HLOOM_ERROR_FILE, "%s: '%s' lies at bytes %lld to %lld of %lld: damaged or truncated", path, v->name,
                        (long long)e.begin, (long long)e.end, (long long)(size - data));
        } else {
          begins[found] = e.begin;
        }
      } while (!status && good && json_is(&j, ','));
      if (!status && good) good = json_is(&j, '}');
    }
    if (!status && !good) status = fail(HLOOM_ERROR_FILE, "%s: its header is not the JSON of a safetensors file", path);
    for (int32_t k = 0; k < count && !status; k++)
      if (begins[k] < 0) status = fail(HLOOM_ERROR_FILE, "%s: it has no '%s'", path, values[k].name);
  }
  for (int32_t k = 0; k < count && !status; k++) {
    const size_t bytes = (size_t)values[k].bytes;
    if (file_seek(file, data + begins[k]) || fread(places[k], 1, bytes, file) != bytes)
      status = fail(HLOOM_ERROR_FILE, "%s: '%s' cannot be read", path, values[k].name);
  }
  give(o, begins);
  give(o, header);
  fclose(file);
  return status;
}

/* Writes to `path`.part first, so that a file of this name is always complete. */
static hloom_status write_file(const char *path, const hloom_value *values, int32_t count, unsigned char *const *places) {
  char name[4096];
  if (snprintf(name, sizeof name, "%s.part", path) >= (int)sizeof name)
    return fail(HLOOM_ERROR_FILE, "the path has more than 4,000 characters");
  FILE *file = fopen(name, "wb");
  if (!file) return fail(HLOOM_ERROR_FILE, "%s: it cannot be written (%s)", name, strerror(errno));
  uint64_t length = 0;
  int good = 1;
  for (int pass = 0; pass < 2 && good; pass++) { /* the header's size, then the header */
    uint64_t written = 0;
    int64_t offset = 0;
    if (pass) {
      const uint64_t padded = (length + 7) / 8 * 8;
      unsigned char head[8];
      for (int k = 0; k < 8; k++) head[k] = (unsigned char)(padded >> 8 * k);
      good = fwrite(head, 1, 8, file) == 8;
    }
    for (int32_t k = 0; k < count; k++) {
      char text[1024];
      int n = snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", k ? "," : "{", values[k].name,
                       stored_dtype(values[k].dtype));
      for (int32_t axis = 0; axis < values[k].rank; axis++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", axis ? "," : "", (long long)values[k].shape[axis]);
      n += snprintf(text + n, sizeof text - (size_t)n, "],\"data_offsets\":[%lld,%lld]}%s", (long long)offset,
                    (long long)(offset + values[k].bytes), k == count - 1 ? "}" : "");
      offset += values[k].bytes;
      written += (uint64_t)n;
      if (pass) good = good && fwrite(text, 1, (size_t)n, file) == (size_t)n;
    }
    if (!pass) length = written;
    if (pass)
      for (; written % 8; written++) good = good && fputc(' ', file) != EOF;
  }
  for (int32_t k = 0; k < count && good; k++)
    good = fwrite(places[k], 1, (size_t)values[k].bytes, file) == (size_t)values[k].bytes;
  good = !fclose(file) && good;
#ifdef _WIN32
  if (good) remove(path);
#endif
  if (good) good = !rename(name, path);
  if (!good) {
    const int reason = errno;
    remove(name);
    return fail(HLOOM_ERROR_FILE, "%s: it cannot be written (%s)", path, strerror(reason));
  }
  return HLOOM_OK;
}

static hloom_status save_state(hloom_program *program, const char *path) {
  if (!program || !path) return fail(HLOOM_ERROR_ARGUMENT, "the program or the path is a null pointer");
  if (!STATE_COUNT) return fail(HLOOM_ERROR_STATE, "the program has no state");
  begin_update(program);
  const hloom_status status = program->has_state ? write_file(path, STATE, STATE_COUNT, program->state)
                                                 : fail(HLOOM_ERROR_STATE, "the state has no values yet");
  end_update(program);
  return status;
}

static hloom_status load_state(hloom_program *program, const char *path) {
  if (!program || !path) return fail(HLOOM_ERROR_ARGUMENT, "the program or the path is a null pointer");
  if (!STATE_COUNT) return fail(HLOOM_ERROR_STATE, "the program has no state");
  begin_update(program);
  const hloom_status status = read_file(&program->options, path, STATE, STATE_COUNT, program->next);
  if (!status) {
    for (int32_t k = 0; k < STATE_COUNT; k++) {
      unsigned char *old = program->state[k];
      program->state[k] = program->next[k];
      program->next[k] = old;
    }
    program->has_state = 1;
  }
  end_update(program);
  return status;
}
