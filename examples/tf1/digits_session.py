"""TensorFlow 1.0's multi-GPU listing: digits from a TFRecord file, a shuffling queue, towers on several devices.

The loss has a regularizer and is collected by the towers' scopes; averages of the variables, a decaying rate, summaries
with the graph, checkpoints with the global step. `tensorboard --logdir FOLDER` shows them.

    python examples/tf1/digits_session.py [--steps 200] [--folder digits_run]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, sessions
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels
from hloom.sessions import summaries

TOWERS, BATCH = 4, 50
FEATURES = {"image": hl.data.Bytes((8, 8, 1), "float32"), "label": hl.data.Int64()}


def write_records(path):
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[..., None]
    hl.data.write_tfrecord(path, {"image": images, "label": digits.target.astype(np.int64)}, FEATURES)


def network():
    one, two = hl.random.split(hl.random.key(0))
    layers = [nn.Conv(1, 16, (3, 3), key=one), nn.relu, nn.MaxPool((2, 2)), nn.Flatten(), nn.Linear(256, 10, key=two)]
    return nn.Sequential(*layers)


def build(records, steps):
    program = sessions.Program("digits")
    with program, hl.device("cpu:0"):
        example = sessions.from_dataset(hl.data.tfrecord(records, FEATURES).repeat())
        parts = [example["image"], example["label"]]
        images, labels = sessions.shuffle_batch(parts, BATCH * TOWERS, 1500, 1000, threads=2)
        step = sessions.global_step()
        net = sessions.variables("net", network())  # the network with variables in place of arrays
        parameters = hl.tree.leaves(net)
        gradients = []
        for k in range(TOWERS):
            with hl.device(f"cpu:{k}"), hl.named_scope(f"GPU_{k}"):
                rows = slice(k * BATCH, (k + 1) * BATCH)
                entropy = softmax_cross_entropy_with_integer_labels(net(images[rows]), labels[rows])
                program.add_to_collection("losses", hnp.mean(entropy))
                penalty = 1e-4 * sum(hnp.sum(p**2) / 2 for p in parameters if p.ndim > 1)
                program.add_to_collection("losses", penalty)
                loss = sum(program.get_collection("losses", f"GPU_{k}"))
                gradients.append(sessions.gradients(loss, parameters))
        means = [sum(g) / TOWERS for g in zip(*gradients, strict=True)]
        rate = optim.exponential_decay(0.3, steps, 0.5)
        pairs = list(zip(means, parameters, strict=True))
        update = sessions.apply_gradients(optim.sgd(rate), pairs, global_step=step)
        averages = sessions.MovingAverage(0.99, num_updates=step)
        with sessions.control_dependencies([update]):
            averages.apply(parameters, name="average")
        program.target("loss", loss)
        summaries.scalar("loss", loss)
        for mean, variable in pairs:
            summaries.histogram(f"gradients/{variable.name}", mean)
            summaries.histogram(variable.name, variable)
        program.target("logits", hl.tree.map(averages.average, net)(images))
        program.target("labels", labels)
    return program


def main(folder, steps=200, report=print):
    """Trains; returns the first and the last loss and the accuracy of the averaged variables."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    write_records(folder / "digits.tfrecord")
    with hl.config(num_cpu_devices=max(TOWERS, hl.config.num_cpu_devices), soft_placement=True):
        program = build(folder / "digits.tfrecord", steps)
        train, merged = program["average"], summaries.merge_all(program)
        with (
            sessions.Session(program) as session,
            hl.summary.Writer(folder / "summaries", lines="jsonl") as writer,
            hl.checkpoints.Manager(folder / "checkpoints", keep=2) as checkpoints,
            sessions.Coordinator() as coordinator,
        ):
            session.run(program.initializer())
            sessions.start_queue_runners(session, coordinator)
            writer.graph(program.module())
            begin = 0
            if (latest := checkpoints.latest()) is not None:  # of an earlier run in the same folder
                session.restore(checkpoints.restore())
                begin = latest + 1
                report(f"goes on from step {latest}")
            losses = []
            for k in range(begin, begin + steps):
                started = time.perf_counter()
                _, loss = session.run([train, "loss"])
                seconds = time.perf_counter() - started
                losses.append(float(loss))
                if (k - begin) % (steps // 5) == 0:
                    rate = BATCH * TOWERS / seconds
                    report(f"step {k}, loss = {losses[-1]:.2f} ({rate:.1f} examples/sec; {seconds:.4f} sec/batch)")
                    summaries.write(writer, session.run(merged), k, program)
                    checkpoints.save(k, session.state())
            checkpoints.save(begin + steps, session.state(), wait=True)
            scores, labels = session.run(["logits", "labels"])
            accuracy = float(np.mean(np.argmax(scores, axis=-1) == np.asarray(labels)))
            report(f"accuracy of the averaged variables: {accuracy:.1%}; checkpoints {checkpoints.steps()}")
    return losses[0], losses[-1], accuracy


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=200)
    arguments.add_argument("--folder", help="for records, summaries and checkpoints (default: a temporary one)")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        main(given.folder or temporary, given.steps)
