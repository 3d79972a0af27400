// The list of all ops. A new one is a file in this folder and a line here.
#include "runtime/core/op.h"

#include <mutex>

namespace megjit::runtime {

// element-wise
OpDef fake_quant();
OpDef quantized_conv();
OpDef softplus();
std::vector<OpDef> activation_ops();
std::vector<OpDef> arithmetic_ops();
std::vector<OpDef> kink_ops();
std::vector<OpDef> logic_ops();
std::vector<OpDef> math_ops();
// shapes, indices, reductions, random numbers
std::vector<OpDef> shape_ops();
std::vector<OpDef> index_ops();
std::vector<OpDef> reduce_ops();
std::vector<OpDef> sort_ops();
std::vector<OpDef> random_ops();
std::vector<OpDef> linalg_ops();
std::vector<OpDef> decomposition_ops();
std::vector<OpDef> fft_ops();
// networks
std::vector<OpDef> attention_ops();
std::vector<OpDef> attention_of_parts_ops();  // after attention_ops, which registers their base ops
std::vector<OpDef> block_weight_ops();
std::vector<OpDef> conv_ops();
OpDef grouped_matmul();
std::vector<OpDef> matmul_ops();
std::vector<OpDef> norm_ops();
std::vector<OpDef> pool_ops();
std::vector<OpDef> recurrent_ops();
std::vector<OpDef> softmax_ops();
// ops of several processes
std::vector<OpDef> collective_ops();

void register_all_ops() {
    static std::once_flag once;
    std::call_once(once, [] {
        using Family = std::vector<OpDef> (*)();
        constexpr Family kFamilies[] = {
            arithmetic_ops,    math_ops,       logic_ops,   activation_ops, shape_ops,
            index_ops,         reduce_ops,     sort_ops,    random_ops,     linalg_ops,
            decomposition_ops, fft_ops,        conv_ops,    matmul_ops,     block_weight_ops,
            norm_ops,          pool_ops,       softmax_ops, attention_ops,  attention_of_parts_ops,
            recurrent_ops,     collective_ops, kink_ops,
        };
        for (const Family family : kFamilies)
            for (OpDef& op : family()) register_op(std::move(op));
        register_op(fake_quant());
        register_op(grouped_matmul());
        register_op(quantized_conv());
        register_op(softplus());
    });
}

}  // namespace megjit::runtime
