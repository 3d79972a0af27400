"""ONNX's own tests of single operators, on what ``load`` makes of them. MEGJIT_ONNX_NODES=1 runs all of them."""

import os
from collections import Counter

import pytest
from node_cases import KNOWN, of_modules, outcome, stored

# Those whose counterparts have most ways to be wrong; one module of the package makes the tests of one op.
MODULES = (
    "averagepool batch_normalization bitwiseand cast clip concat conv convtranspose depthtospace dequantizelinear dft div einsum expand gather gathernd "
    "gelu gemm groupnormalization gru if_ layernormalization loop lppool lstm matmul maxpool melweightmatrix mod onehot optionalgetelement pad "
    "prelu qlinearconv quantizelinear reduce_log_sum_exp reducemean reshape resize rnn scan scatterelements scatternd slice softmax "
    "split squeeze stft topk transpose trilu unsqueeze where"
).split()
# Those that are run in traces, too.
IN_TRACES = "attention bitshift causal_conv_with_state deformconv gru linear_attention optionalhaselement roialign rnn sequenceinsert splittosequence tensorscatter".split()


@pytest.mark.parametrize("module", MODULES)
def test_an_operator_does_what_its_tests_say(module):
    wrong = {
        case.name: why
        for case in of_modules(module)
        for kind, why in [outcome(case)]
        if kind not in ("passed", "types") and case.name not in KNOWN
    }
    assert not wrong


@pytest.mark.parametrize("module", IN_TRACES)
def test_an_operator_does_it_in_traces(module):
    cases = [case for case in of_modules(module) if not case.name.endswith("_expanded")]
    results = {case.name: outcome(case, traced) for case in cases for traced in (False, True)}
    assert not {name: why for name, (kind, why) in results.items() if kind != "passed"}


@pytest.mark.parametrize("pattern", ["test_PReLU_2d_multiparam", "test_sequence_model[46]"])
def test_a_model_of_the_package_gives_its_results(pattern):
    cases = list(stored(pattern))
    assert cases
    assert [outcome(case, traced) for case in cases for traced in (False, True)] == [("passed", "")] * 2 * len(cases)


@pytest.mark.skipif("MEGJIT_ONNX_NODES" not in os.environ, reason="minutes: set MEGJIT_ONNX_NODES=1")
def test_all_models_of_the_package():
    results = {case.name: outcome(case) for case in stored()}
    refused = {name for name, (kind, _) in results.items() if kind in ("refused", "types")}
    assert all(name.startswith(("test_gradient_of", "test_strnorm_model")) for name in refused)
    assert not {name: why for name, (kind, why) in results.items() if kind == "failed"}


@pytest.mark.skipif("MEGJIT_ONNX_NODES" not in os.environ, reason="minutes: set MEGJIT_ONNX_NODES=1")
def test_all_node_tests():
    results = {case.name: outcome(case) for case in of_modules()}
    counts = Counter(kind for kind, _ in results.values())
    failed = {name: why for name, (kind, why) in results.items() if kind == "failed"}
    print(dict(counts))
    assert set(failed) <= set(KNOWN), failed
    assert counts["passed"] >= 1810
