"""package --static of functions that change states: compiled, and trained with, without anything of ours."""

import subprocess
import sys

import numpy as np
import pytest
from test_static_code import CC, normal, packaged

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference

# Runs `step` on each batch that it reads, and prints its loss; then `predict` on the last one, and the state.
MAIN = r"""
#include "predict.h"
#include "step.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
struct part { void (*body)(void*, int); void* data; int i; };
static void* one(void* part) { struct part* p = part; p->body(p->data, p->i); return 0; }
static void parallel_for(void* pool, int count, void (*body)(void* data, int i), void* data) {
    pthread_t threads[16];
    struct part parts[16];
    if (count > 16) abort();
    ++*(int*)pool;
    for (int i = 0; i < count; ++i) {
        parts[i] = (struct part){body, data, i};
        if (pthread_create(&threads[i], 0, one, &parts[i])) abort();
    }
    for (int i = 0; i < count; ++i) pthread_join(threads[i], 0);
}
static _Alignas(64) char step_arena[step_arena_bytes], predict_arena[predict_arena_bytes];
MEMORY
int main(int argc, char** argv) {
    int calls = 0;
    const step_threads threads = {argc > 1 ? atoi(argv[1]) : 1, parallel_for, &calls};
    static float x[X], loss[1], scores[SCORES];
    static int32_t y[Y];
    const step_inputs in = {x, y};
    const step_outputs out = {loss};
    const step_states states = {STATES};
    const predict_inputs given = {x};
    const predict_outputs predicted = {scores};
    const predict_states weights = {WEIGHTS};
    step_start(&states);
    while (fread(x, sizeof x, 1, stdin) == 1 && fread(y, sizeof y, 1, stdin) == 1) {
        const int status = step_run_on(&in, &out, &states, step_arena, &threads);
        if (status && status != 3) return status;
        if (status) loss[0] = -1;
        fwrite(loss, sizeof loss, 1, stdout);
    }
    if (predict_run(&given, &predicted, &weights, predict_arena)) return 9;
    fwrite(scores, sizeof scores, 1, stdout);
    WRITE
    (void)argv;
    return threads.count > 1 && calls == 0 ? 5 : 0;
}
"""


def trained(net, make_optimizer, shape, classes=5):
    """Functions that train it and predict by it, recorded."""
    opt, gm = make_optimizer(net.parameters()), GradManager().attach(net.parameters())

    @trace(record_only=True)
    def step(x, y):
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    predict = trace(lambda x: F.softmax(net(x)), record_only=True)
    step(mge.tensor(np.zeros(shape, "float32")), mge.tensor(np.zeros(shape[0], "int32")))
    net.eval()
    predict(mge.tensor(np.zeros(shape, "float32")))
    return {"step": step, "predict": predict}


C_TYPES = {"int8": "int8_t", "uint8": "uint8_t"}


def c_name(state):
    return "".join(c if c.isalnum() else "_" for c in state)


def built(tmp_path, dump, shape, classes, sanitize):
    """The program, made of what both functions are packaged as."""
    folder, arguments = tmp_path / "c", []
    for function in ("step", "predict"):
        done = packaged(folder / function, dump, "--function", function, "--name", function, "--states")
        assert done.returncode == 0, done.stderr
        arguments += [f"-I{folder / function}", f"-Wa,-I{folder / function}", str(folder / function / f"{function}.c")]
        arguments += [str(path) for path in sorted((folder / function).glob("*.o"))]
    model = GraphInference(dump, function="step")
    states = model.state_dict()
    header = (folder / "predict" / "predict.h").read_text()
    own = sorted((c_name(name) for name in states if f"* {c_name(name)};" in header), key=lambda name: header.index(f"* {name};"))
    order = (folder / "step" / "step.h").read_text()
    names = sorted(map(c_name, states), key=lambda name: order.index(f"* {name};"))
    texts = {
        "MEMORY": "".join(f"static {C_TYPES.get(value.dtype.name, 'float')} s_{c_name(name)}[{value.size}];\n" for name, value in states.items()),
        "STATES": ", ".join(f"s_{name}" for name in names), "WEIGHTS": ", ".join(f"s_{name}" for name in own),
        "WRITE": "".join(f"fwrite(s_{c_name(name)}, {value.nbytes}, 1, stdout);\n" for name, value in states.items()),
        "SCORES": str(shape[0] * classes), "[X]": f"[{int(np.prod(shape))}]", "[Y]": f"[{shape[0]}]",
    }  # fmt: skip
    text = MAIN
    for word, by in texts.items():
        text = text.replace(word, by)
    (tmp_path / "main.c").write_text(text)
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if sanitize else []
    subprocess.run([CC, *flags, str(tmp_path / "main.c"), *arguments, "-lm", "-o", str(tmp_path / "main")], check=True)
    return tmp_path / "main", model


def run(program, batches, model, threads=1, classes=5):
    """Losses, scores and states, as the program has them."""
    done = subprocess.run([str(program), str(threads)], input=b"".join(a.tobytes() for batch in batches for a in batch), capture_output=True)
    assert done.returncode == 0, (done.returncode, done.stderr.decode())
    count, rows = len(batches), len(batches[0][1])
    numbers, rest = np.split(np.frombuffer(done.stdout, "uint8"), [4 * (count + rows * classes)])
    losses, scores = np.split(numbers.view("float32"), [count])
    states = {}
    for name, value in model.state_dict().items():
        state, rest = np.split(rest, [value.nbytes])
        states[name] = state.copy().view(value.dtype).reshape(value.shape)
    assert rest.size == 0
    return losses, scores.reshape(rows, classes), states


def batches_of(shape, classes, count):
    random = np.random.default_rng(1)
    return [(normal(*shape, seed=seed), random.integers(0, classes, shape[0]).astype("int32")) for seed in range(count)]


class Perceptron(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = M.Linear(12, 300), M.LayerNorm(300), M.Linear(300, 5)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))))


OPTIMIZERS = {
    "momentum": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: optim.Adam(parameters, lr=0.01),
}


@pytest.mark.parametrize("sanitize", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(tmp_path, name, sanitize):
    mge.random.seed(5)
    shape, dump = (64, 12), tmp_path / "net.dump"
    dump_functions(dump, trained(Perceptron(), OPTIMIZERS[name], shape))
    program, model = built(tmp_path, dump, shape, 5, sanitize)
    batches = batches_of(shape, 5, 12)
    losses, scores, states = run(program, batches, model)
    wanted = [float(next(iter(model.run(*batch).values()))) for batch in batches]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    for state, value in model.state_dict().items():
        np.testing.assert_allclose(states[state], value, rtol=2e-3, atol=2e-5, err_msg=state)
    np.testing.assert_allclose(scores, model.function("predict").run(batches[-1][0]).popitem()[1], rtol=1e-3, atol=1e-5)
    for mine, its in zip(run(program, batches, model, threads=3)[2].values(), states.values(), strict=True):
        assert mine.tobytes() == its.tobytes()  # of whatever number of threads


def test_training_with_averages_in_codes(tmp_path):
    """Another order of sums gives some elements the next code: the losses are near, and the states of both threads the same."""
    mge.random.seed(5)
    shape, dump = (64, 12), tmp_path / "net.dump"
    dump_functions(dump, trained(Perceptron(), lambda parameters: optim.AdamW8bit(parameters, lr=0.01, min_size=1024), shape))
    program, model = built(tmp_path, dump, shape, 5, True)
    batches = batches_of(shape, 5, 12)
    losses, _, states = run(program, batches, model)
    np.testing.assert_allclose(losses, [float(next(iter(model.run(*batch).values()))) for batch in batches], rtol=5e-3)
    assert states["first.weight.exp_avg"].dtype == np.int8 and states["first.weight.exp_avg_sq"].dtype == np.uint8
    for mine, its in zip(run(program, batches, model, threads=3)[2].values(), states.values(), strict=True):
        assert mine.tobytes() == its.tobytes()


class Convolutions(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = M.Conv2d(2, 6, 3, padding=1), M.Conv2d(6, 8, (3, 2), stride=2, padding=1), M.Linear(8, 5)

    def forward(self, x):
        return self.last(F.relu(self.second(F.relu(self.first(x)))).mean(axis=(2, 3)))


class Pools(M.Module):
    """Windows that overlap, are padded, and meet equal elements (behind relu); statistics of each batch."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = M.Conv2d(2, 6, 3, padding=1), M.BatchNorm2d(6), M.Linear(6 * 3 * 2, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        x = F.avg_pool2d(x, 2, 1, 1, mode="average_count_exclude_padding") + F.avg_pool2d(x, 2, 1, 1, mode="average")
        return self.last(F.flatten(F.max_pool2d(x, 2, 2), 1))


@pytest.mark.parametrize("net", [Convolutions, Pools])
def test_gradients_of_convolutions_and_pools(tmp_path, net):
    mge.random.seed(6)
    shape, dump = (4, 2, 9, 8), tmp_path / "net.dump"
    dump_functions(dump, trained(net(), OPTIMIZERS["momentum"], shape))
    program, model = built(tmp_path, dump, shape, 5, True)
    batches = batches_of(shape, 5, 6)
    losses, _, states = run(program, batches, model)
    np.testing.assert_allclose(losses, [float(next(iter(model.run(*batch).values()))) for batch in batches], rtol=1e-4)
    for state, value in model.state_dict().items():
        np.testing.assert_allclose(states[state], value, rtol=2e-3, atol=2e-5, err_msg=state)


def test_a_label_out_of_range_leaves_the_state(tmp_path):
    shape, dump = (64, 12), tmp_path / "net.dump"
    dump_functions(dump, trained(Perceptron(), OPTIMIZERS["momentum"], shape))
    program, model = built(tmp_path, dump, shape, 5, True)
    good = batches_of(shape, 5, 3)
    bad = (good[0][0], np.full(64, 5, "int32"))
    losses, _, states = run(program, [good[0], bad, *good[1:]], model)
    assert losses[1] == -1
    for mine, its in zip(states.values(), run(program, good, model)[2].values(), strict=True):
        assert mine.tobytes() == its.tobytes()


SWAP = r"""
#include "net.h"
#include <stdio.h>
int main(void) {
    static float a[3], b[3], old[3], sum[3];
    static _Alignas(64) char arena[net_arena_bytes];
    const net_inputs in = {0};
    const net_outputs out = {old, sum};
    const net_states states = {a, b};
    net_start(&states);
    for (int i = 0; i < 3; ++i) {
        if (net_run(&in, &out, &states, arena)) return 1;
        printf("%g %g %g %g\n", a[0], b[0], old[0], sum[0]);
    }
    return 0;
}
"""


def test_states_that_change_places(tmp_path):
    """Each new value lies where another state's old one was."""
    a, b = mge.Parameter(np.float32([1, 1, 1])), mge.Parameter(np.float32([2, 2, 2]))

    @trace(record_only=True)
    def step():
        old, both = a + 0, a + b
        first, second = b * 1, a * 3
        a[...], b[...] = first, second
        return old, both

    step()
    dump_functions(tmp_path / "net.dump", {"step": step})
    done = packaged(tmp_path / "c", tmp_path / "net.dump")
    assert done.returncode == 0, done.stderr
    (tmp_path / "main.c").write_text(SWAP)
    folder = tmp_path / "c"
    words = [CC, "-std=c11", "-fsanitize=address,undefined", f"-I{folder}", f"-Wa,-I{folder}", str(tmp_path / "main.c"), str(folder / "net.c")]
    subprocess.run([*words, *map(str, folder.glob("*.o")), "-lm", "-o", str(tmp_path / "main")], check=True)
    found = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == ["2 3 1 3", "3 6 2 5", "6 9 3 9"]


def test_random_numbers_are_refused(tmp_path):
    w = mge.Parameter(np.ones(3, "float32"))

    @trace(record_only=True)
    def step(x):
        w[...] = w * 2
        return F.dropout(x * w, 0.5)

    step(mge.tensor(np.ones(3, "float32")))
    dump_functions(tmp_path / "net.dump", {"step": step})
    done = packaged(tmp_path / "c", tmp_path / "net.dump")
    assert done.returncode != 0 and "draws from the state random" in done.stderr


def test_what_a_condition_selects_is_refused(tmp_path):
    traced = trace(lambda x: x[x > 0], symbolic=True, capture_as_const=True)
    traced(mge.tensor(np.ones(3, "float32")))
    traced.dump(tmp_path / "net.dump")
    for options in ((), ("--states",)):
        done = packaged(tmp_path / "c", tmp_path / "net.dump", *options)
        assert done.returncode != 0 and "whose shape follows from the data" in done.stderr


def test_states_are_for_static_code(tmp_path):
    done = subprocess.run([sys.executable, "-m", "megengine", "package", "a", "-o", "b", "--states"], capture_output=True, text=True)
    assert done.returncode != 0 and "--states is for --static DIR" in done.stderr
