"""What steps of GPT-2 small (8 x 1,024 tokens, bfloat16) and ResNet-50 (128 images) ask of a described H100: no more than they did, in launches,
bytes and modelled time."""

import warnings

import numpy as np
import pytest
import zoo

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import config
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD, Adam

WIDTH, HEADS, BLOCKS, WORDS, TOKENS, BATCH = 768, 12, 12, 50257, 1024, 8


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = M.LayerNorm(WIDTH), M.LayerNorm(WIDTH)
        self.qkv, self.out = M.Linear(WIDTH, 3 * WIDTH), M.Linear(WIDTH, WIDTH)
        self.up, self.down = M.Linear(WIDTH, 4 * WIDTH), M.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        split = self.qkv(self.norm1(x)).reshape(BATCH, TOKENS, 3, WIDTH)
        q, k, v = (split[:, :, i] for i in range(3))
        x = x + self.out(F.multi_head_attention(q, k, v, WIDTH, HEADS, 0.0, 0.0, None, is_causal=True)[0])
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT2(M.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.words = mge.Parameter(np.zeros((WORDS, WIDTH), np.float32))
        self.places = mge.Parameter(np.zeros((TOKENS, WIDTH), np.float32))

    def forward(self, x):
        x = F.embedding(x, self.words) + self.places
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.words)


@pytest.fixture(scope="module")
def plan():
    model = GPT2()
    optimizer, gm = Adam(model.parameters(), lr=1e-4), GradManager().attach(model.parameters())

    @trace(symbolic=True, opt_level=3)
    def step(x, y):
        with gm:
            with autocast(low_prec_dtype="bfloat16"):
                out = model(x)
            loss = F.loss.cross_entropy(out.astype("float32").reshape(-1, WORDS), y.reshape(-1))
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    text = mge.tensor(np.zeros((BATCH, TOKENS), np.int32))
    return step.on("sm_90").plan(text, text)


def is_product(cost):
    return cost.ops[0].startswith(("matmul", "attention"))


def test_every_step_has_a_modelled_time(plan):
    assert not plan.unknown


def test_launches(plan):
    assert plan.launches <= 317


def test_bytes_outside_of_products_and_attention(plan):
    assert sum(cost.bytes for cost in plan.costs if not is_product(cost)) <= 14.31e9


def test_modelled_time(plan):
    assert plan.seconds <= 18.03e-3


def test_bytes_of_the_loss(plan):
    """Two walks over the logits forward, of halves with a pitch, where the second one finds the rows in the cache; backward reads them and writes their
    gradient in place."""
    loss = [cost for cost in plan.costs if "exp" in cost.ops]
    assert len(loss) == 2 and sum(cost.bytes for cost in loss) <= 2.6e9


def test_bytes_of_the_optimizer(plan):
    """Adam beside its gradients and the weights in halves that it writes, and casts that are left. Of the words' gradient it reads the head's part and
    the rows of the text."""
    updates = [cost for cost in plan.costs if "true_div" in cost.ops and "reduce_sum" not in cost.ops]
    casts = [cost for cost in plan.costs if set(cost.ops) == {"cast"}]
    assert sum(cost.bytes for cost in updates + casts) <= 3.49e9


def test_instructions_of_an_element_of_gelu(plan):
    of = {cost.ops[0]: cost.instructions_of_element for cost in plan.costs if cost.ops[0].startswith("gelu")}
    assert of["gelu"] <= 45 and of["gelu.grad0"] <= 60


def test_nothing_is_copied(plan):
    """Attention reads its heads in what the projection gives, and writes its results and gradients where products take them. The logits' gradient is
    computed with rows that begin at 16 bytes."""
    copies = ("transpose", "slice", "slice_set", "concat")
    assert [cost.ops for cost in plan.costs if cost.ops[0] in copies and cost.launches] == []
    assert sum(cost.bytes for cost in plan.costs if cost.ops[0] == "full") <= 0.3e9


def test_flops_are_those_of_the_network(plan):
    """Multiply-adds of a token: four projections and the MLP a block, causal attention (whose gradient has five products for two), and the words."""
    dense = 2 * 3 * BATCH * TOKENS * (BLOCKS * 12 * WIDTH**2 + WORDS * WIDTH)
    attention = 2 * (2 + 5) * BATCH * TOKENS * (TOKENS // 2) * BLOCKS * WIDTH
    assert plan.flops == pytest.approx(dense + attention, rel=2e-3)


@pytest.fixture(scope="module", params=["tf32", "bfloat16"])
def resnet(request):
    make, _ = zoo.FULL_SIZE["resnet50"]
    model = make()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    gm = GradManager().attach(model.parameters())

    @trace(symbolic=True, opt_level=3)
    def step(image, label):
        with gm:
            with autocast(request.param == "bfloat16", low_prec_dtype="bfloat16"):
                out = model(image)
            loss = F.loss.cross_entropy(out.astype("float32"), label)
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    images, labels = np.zeros((128, 3, 224, 224), np.float32), np.zeros(128, np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf32 changes nothing where no card is, but for such plans
        with config._override(tf32=request.param == "tf32"):
            return request.param, step.on("sm_90").plan(mge.tensor(images), mge.tensor(labels))


def test_passes_over_activations(resnet):
    """Bytes outside of convolutions and products, in the bytes of all that convolutions give."""
    dtype, plan = resnet
    assert not plan.unknown
    others = [cost for cost in plan.costs if not cost.ops[0].startswith(("conv", "matmul"))]
    activations = 11_113_984 * 128 * (2 if dtype == "bfloat16" else 4)
    assert sum(cost.bytes for cost in others) <= (5.97 if dtype == "bfloat16" else 6.8) * activations
    assert sum(cost.seconds for cost in others) <= (6.15e-3 if dtype == "bfloat16" else 13.42e-3)
    assert plan.launches <= 449


@pytest.mark.filterwarnings("ignore:.*tf32 has no effect here")
@pytest.mark.parametrize("dtype, count", [("float32", 8), ("tf32", 6), ("bfloat16", 5)])
def test_passes_over_an_activation_between_two_convolutions(dtype, count):
    """Batch norm and relu read it once for the statistics and once to normalize it, which writes once. Backward reads it and its gradient twice, and writes
    once: 8. On tensor cores the convolution behind it adds up the gradient: 6. The statistics of halves come from the convolution before it: 5."""
    convs = [M.Conv2d(64, 64, 1, bias=False) for _ in range(6)]
    norms = [M.BatchNorm2d(64) for _ in convs]
    net = M.Sequential(*(layer for pair in zip(convs, norms, strict=True) for layer in (*pair, M.ReLU())))
    gm, rule = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)

    def passes(layers):
        @trace(symbolic=True, opt_level=3)
        def step(x):
            with gm:
                y = x
                with autocast(dtype == "bfloat16", low_prec_dtype="bfloat16"):
                    for each in list(net)[: 3 * layers]:
                        y = each(y)
                gm.backward(y.astype("float32").mean())
            rule.step().clear_grad()

        with config._override(tf32=dtype == "tf32"):
            plan = step.on("sm_90").plan(mge.tensor(np.zeros((32, 64, 56, 56), np.float32)))
        others = [cost for cost in plan.costs if not cost.ops[0].startswith("conv")]
        return sum(cost.bytes for cost in others) / ((2 if dtype == "bfloat16" else 4) * 32 * 64 * 56 * 56)

    assert passes(6) - passes(5) == pytest.approx(count, abs=0.02)
