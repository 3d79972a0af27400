// Products of matrices by a warp: mma.sync of halves, whose sums are f32. (A card adds the products
// of an instruction in an order of its own, and may cut digits that f32 does not hold; here they
// are added exactly, and rounded once.)
#include "tests/card/emulator/ptx/decode.h"
#include "tests/card/emulator/ptx/rounding.h"

namespace megjit::card::ptx {
namespace {

constexpr int kRows = 16, kColumns = 8;

// Where lanes hold the elements (PTX ISA, "Matrix fragments for mma.m16n8k16"): lane 4 g + t has
// rows g and g + 8 of a and d, column g of b, and neighbors 2 t and 2 t + 1, eight further on
// again.
template <float (*read)(uint16_t)>
void multiply(Warp& w, const Inst& in) {
    const uint32_t go = together(w, in, in.e);
    if (!go) return;
    if (go != kAll)
        stop(w, kAll & ~go, Result::illegal_instruction, "mma needs all lanes of the warp");
    const int depth = in.count;  // of the sum
    const uint32_t *const to = in.list, *const of_a = to + 4, *const of_b = of_a + depth / 4,
                          *const of_c = of_b + depth / 8;
    const auto half = [&](uint32_t at, int lane, int k) {
        return read(static_cast<uint16_t>(row<uint32_t>(w, at)[lane] >> (k % 2 * 16)));
    };
    float d[kRows][kColumns];
    for (int m = 0; m < kRows; ++m)
        for (int n = 0; n < kColumns; ++n) {
            const int lane = m % 8 * 4 + n / 2, place = m / 8 * 2 + n % 2;
            double sum = row<float>(w, of_c[place])[lane];
            for (int k = 0; k < depth; ++k)
                sum +=
                    static_cast<double>(half(of_a[k / 8 * 2 + m / 8], m % 8 * 4 + k % 8 / 2, k)) *
                    half(of_b[k / 8], n * 4 + k % 8 / 2, k);
            d[m][n] = static_cast<float>(sum);
        }
    for (int m = 0; m < kRows; ++m)
        for (int n = 0; n < kColumns; ++n)
            row<float>(w, to[m / 8 * 2 + n % 2])[m % 8 * 4 + n / 2] = d[m][n];
}

void decode_multiply(Decoder& d, const Statement& s, Inst& in) {
    const bool is_half = s.has("f16");
    const std::string type = is_half ? "f16" : "bf16", depth = s.has("m16n8k8") ? "8" : "16";
    const std::vector<std::string> known = {
        "mma", "sync", "aligned", "m16n8k" + depth, "row", "col", "f32", type, type, "f32"};
    if (s.opcode != known || s.operands.size() != 4)
        d.refuse(
            "of mma the emulated card executes m16n8k8 and m16n8k16 of f16 and bf16 with f32 sums");
    in.run = is_half ? &multiply<from_half> : &multiply<from_bfloat>;
    in.count = depth == "8" ? 8 : 16;
    const size_t sizes[] = {4, in.count / 4u, in.count / 8u, 4};
    std::vector<uint32_t> rows;
    for (size_t k = 0; k < s.operands.size(); ++k) {
        const std::vector<Operand>& parts = s.operands[k].parts;
        if (parts.size() != sizes[k]) d.refuse("another number of elements");
        for (const Operand& part : parts)
            rows.push_back(k == 0 ? d.dest(part, 4) : d.source(part, 4));
    }
    in.list = d.keep(std::move(rows)).data();
    in.e = d.constant(kAll, 4);
}

}  // namespace

void add_matrix_operations(Operations& ops) {
    ops["mma"] = &decode_multiply;
    for (const char* name : {"wmma", "wgmma", "ldmatrix", "stmatrix", "tcgen05", "tensormap"})
        ops[name] = [](Decoder& d, const Statement&, Inst&) {
            d.refuse("this instruction of tensor cores is not executed by the emulated card");
        };
}

}  // namespace megjit::card::ptx
