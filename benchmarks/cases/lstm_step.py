"""How long does a training step of two LSTM layers take (100 steps of a batch of 32, inputs and states 256 wide)?"""

import numpy as np
from case import Case, Target
from cases import _frameworks as on

STEPS, BATCH, WIDTH, LAYERS, RATE = 100, 32, 256, 2, 0.1
PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _data():
    """Weights by torch's names, and batches of (x, wanted y)."""
    rng = np.random.RandomState(0)
    bound = WIDTH**-0.5
    shapes = {"weight": (4 * WIDTH, WIDTH), "bias": (4 * WIDTH,)}
    weights = {
        f"{part}_l{layer}": rng.uniform(-bound, bound, shapes[part[: part.index("_")]]).astype("f")
        for layer in range(LAYERS)
        for part in PARTS
    }
    batches = [
        tuple(rng.randn(STEPS, BATCH, WIDTH).astype(np.float32) for _ in range(2)) for _ in range(3)
    ]
    return weights, batches


def megjit():
    on.setup_megjit()
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import SGD

    weights, batches = _data()
    net = M.LSTM(WIDTH, WIDTH, LAYERS)
    parameters = {
        f"{part}_l{layer}": getattr(net.cells[layer][0], part)
        for layer in range(LAYERS)
        for part in PARTS
    }
    for name, parameter in parameters.items():
        parameter[...] = mge.tensor(weights[name])
    optimizer = SGD(net.parameters(), lr=RATE)
    gm = GradManager().attach(net.parameters())

    @trace(symbolic=True, opt_level=3)
    def step(x, y, *, net, optimizer, gm):
        with gm:
            loss = F.mean(F.square(net(x)[0] - y))
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    def now():
        return {name: parameter.numpy() for name, parameter in parameters.items()}

    return on.training_megjit(
        lambda x, y: step(x, y, net=net, optimizer=optimizer, gm=gm), batches, now
    )


def torch():
    import torch

    on.setup_torch()
    weights, batches = _data()
    net = torch.nn.LSTM(WIDTH, WIDTH, LAYERS)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, fused=True)

    def step(x, y):
        loss = torch.nn.functional.mse_loss(net(x)[0], y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def now():
        return {name: parameter.detach().numpy() for name, parameter in net.named_parameters()}

    return on.training_torch(step, batches, now)


CASES = [
    Case(
        name="lstm_step",
        builders={"megjit": megjit, "torch": torch},
        targets=(Target("LSTM step", against=("torch",), at_most=1),),
        rtol=1e-3,
        atol=1e-5,
        rounds=(5, 2),
        seconds=0.5,
        work={"flops": 2 * 3 * 8 * WIDTH * WIDTH * LAYERS * STEPS * BATCH},
    )
]
