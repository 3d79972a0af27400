// Kernels written by hand for GPUs: the same calls on the CPU and on gpu0, a card or an emulated
// one (tests/CMakeLists.txt). Results are the same bits, but for the few ops that say otherwise.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/cuda/product_kernel.h"
#include "tests/backends/cuda_testing.h"

namespace megjit::cuda { namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;

const std::vector<DType> kReal = {DType::f32, DType::f16, DType::bf16, DType::i32, DType::i16,
                                  DType::i8,  DType::u8,  DType::u16,  DType::b8};
const std::vector<DType> kFloating = {DType::f32, DType::f16, DType::bf16};

struct Values {
    Type type;
    std::vector<std::byte> bytes;
};

class CudaOps : public CudaDeviceTest {
protected:
    std::mt19937 random_{7};

    int64_t between(int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random_);
    }
    void store(Values& v, int64_t at, double value) {
        const auto put = [&](auto element) {
            std::memcpy(v.bytes.data() + static_cast<size_t>(at) * sizeof element, &element,
                        sizeof element);
        };
        switch (v.type.dtype) {
            case DType::f32: return put(static_cast<float>(value));
            case DType::f64: return put(value);
            case DType::i64: return put(static_cast<int64_t>(value));
            case DType::f16: return put(float_to_half(static_cast<float>(value)));
            case DType::bf16: return put(float_to_bfloat(static_cast<float>(value)));
            case DType::i32: return put(static_cast<int32_t>(value));
            case DType::i16: return put(static_cast<int16_t>(value));
            case DType::u16: return put(static_cast<uint16_t>(value));
            case DType::i8: return put(static_cast<int8_t>(value));
            case DType::u8: return put(static_cast<uint8_t>(value));
            case DType::b8: return put(static_cast<uint8_t>(value != 0));
            case DType::c64: return put(std::array{static_cast<float>(value), 0.25f});
        }
    }
    Values of(const Type& type, const Floats& numbers) {
        Values v{type, std::vector<std::byte>(type.bytes())};
        for (int64_t i = 0; i < type.numel(); ++i) store(v, i, numbers[static_cast<size_t>(i)]);
        return v;
    }
    // Some of each kind of number that the dtype has.
    Values some(const Type& type) {
        Values v{type, std::vector<std::byte>(type.bytes())};
        std::normal_distribution<double> normal(0, 3);
        const bool is_signed = type.dtype != DType::u8 && type.dtype != DType::u16;
        for (int64_t i = 0; i < type.numel(); ++i) {
            const double number = is_floating(type.dtype) ? normal(random_)
                                  : is_signed             ? static_cast<double>(between(-9, 9))
                                                          : static_cast<double>(between(0, 200));
            store(v, i, number);
        }
        return v;
    }
    Values places(const Shape& shape, int64_t extent) {
        Values v{{DType::i32, shape},
                 std::vector<std::byte>(static_cast<size_t>(shape.numel()) * 4)};
        for (int64_t i = 0; i < shape.numel(); ++i)
            store(v, i, static_cast<double>(between(-extent, extent - 1)));
        return v;
    }
    Values key() { return of({DType::i32, {4}}, {123, 456, 7, 0}); }

    // Runs the op; memory of results holds something else before.
    static std::vector<Values> run(Device& device, std::string_view op, const Attrs& attrs,
                                   const std::vector<Values>& inputs) {
        std::vector<Type> types;
        for (const Values& input : inputs) types.push_back(input.type);
        const OpCall call{find_op(op), attrs, types};
        const std::vector<Type> outputs = infer(call);
        const auto executable = device.prepare(call, outputs);
        std::vector<TensorRef> tensors;
        std::vector<void*> in, out;
        for (const Values& input : inputs)
            in.push_back(
                tensors.emplace_back(tensor_from_host(device, input.type, input.bytes.data()))
                    ->data());
        for (const Type& type : outputs)
            out.push_back(tensors.emplace_back(empty_tensor(device, type))->data());
        const auto bytes = static_cast<int64_t>(executable->workspace_bytes());
        const TensorRef workspace = empty_tensor(device, {DType::u8, {bytes}});
        executable->enqueue(device.stream(), in.data(), out.data(), workspace->data());
        device.stream().synchronize();
        std::vector<Values> results;
        for (size_t k = 0; k < outputs.size(); ++k) {
            const HostView view(tensors[inputs.size() + k]);
            const auto* data = view.as<std::byte>();
            results.push_back({outputs[k], {data, data + outputs[k].bytes()}});
        }
        return results;
    }

    static double number(const Values& v, int64_t at) {
        const std::byte* p = v.bytes.data() + static_cast<size_t>(at) * size_of(v.type.dtype);
        const auto bits = [p] {
            uint16_t h;
            std::memcpy(&h, p, sizeof h);
            return h;
        };
        float f;
        std::memcpy(&f, p, std::min(sizeof f, size_of(v.type.dtype)));
        return static_cast<double>(v.type.dtype == DType::f16    ? half_to_float(bits())
                                   : v.type.dtype == DType::bf16 ? bfloat_to_float(bits())
                                                                 : f);
    }

    // `tolerance` 0: the same bits; else the difference, of numbers near 1.
    static void agree(std::string_view op, const Attrs& attrs, const std::vector<Values>& inputs,
                      double tolerance = 0) {
        std::string title(op);
        for (const Values& input : inputs) title += " " + to_string(input.type);
        for (const Attr& attr : attrs) title += " " + to_string(attr);
        SCOPED_TRACE(title);
        const std::vector<Values> want = run(host_device(), op, attrs, inputs),
                                  got = run(gpu(), op, attrs, inputs);
        for (size_t k = 0; k < want.size(); ++k) {
            if (got[k].bytes == want[k].bytes) continue;
            const auto bytes = static_cast<int64_t>(size_of(want[k].type.dtype));
            for (int64_t i = 0; i < want[k].type.numel(); ++i) {
                const bool same = std::equal(got[k].bytes.begin() + i * bytes,
                                             got[k].bytes.begin() + (i + 1) * bytes,
                                             want[k].bytes.begin() + i * bytes);
                if (same) continue;
                const double a = number(got[k], i), b = number(want[k], i);
                if (std::isnan(a) && std::isnan(b)) continue;
                if (tolerance > 0 && std::abs(a - b) <= tolerance * (1 + std::abs(b))) continue;
                ADD_FAILURE() << "output " << k << " at " << i << ": " << a << ", not " << b;
                return;
            }
        }
    }

    static std::string refusal(Device& device, std::string_view op, const Attrs& attrs,
                               const std::vector<Values>& inputs) {
        try {
            run(device, op, attrs, inputs);
        } catch (const UserError& error) { return error.what(); }
        return "";
    }
    static void both_refuse(std::string_view op, const Attrs& attrs,
                            const std::vector<Values>& inputs) {
        const std::string want = refusal(host_device(), op, attrs, inputs);
        EXPECT_NE(want, "") << op;
        EXPECT_EQ(refusal(gpu(), op, attrs, inputs), want);
    }
};

const std::vector<DType> kOfEachSize = {DType::u8, DType::f16, DType::f32, DType::c64};

// --- copies -------------------------------------------------------------------------------------

TEST_F(CudaOps, Slices) {
    for (const DType dtype : kOfEachSize) {
        const auto slice = [&](const Shape& shape, Ints begin, Ints end, Ints step) {
            const Values x = some({dtype, shape});
            agree("slice", {begin, end, step}, {x});
            std::vector<Type> type{x.type};
            const Attrs attrs{begin, end, step};
            const Type part = infer({find_op("slice"), attrs, type})[0];
            agree("slice_set", attrs, {x, some(part)});
        };
        slice({7, 64}, {2, 16}, {5, 48}, {1, 1});
        slice({7, 65}, {0, 1}, {7, 64}, {2, 3});
        slice({5, 6, 7}, {4, 5, 6}, {-1, -1, -1}, {-1, -2, -3});
        slice({5, 6, 7}, {0, 0, 0}, {5, 6, 7}, {1, 1, 1});
        slice({5, 6}, {3, 2}, {3, 4}, {1, 1});
        slice({33}, {32}, {-1}, {-1});
    }
    agree("slice", {Ints{0, 1, 1, 0}, Ints{2, 5, 4, 3}, Ints{1, 2, 1, 1}},
          {some({DType::f32, {2, 6, 5, 4}, Layout::channels_last})});
}

TEST_F(CudaOps, Joins) {
    for (const DType dtype : kOfEachSize) {
        const auto x = [&](const Shape& shape) { return some({dtype, shape}); };
        agree("concat", {int64_t{0}}, {x({3, 5}), x({1, 5}), x({0, 5}), x({64, 5})});
        agree("concat", {int64_t{1}}, {x({3, 5, 4}), x({3, 1, 4}), x({3, 8, 4})});
        agree("concat", {int64_t{-1}}, {x({9, 16}), x({9, 32}), x({9, 3})});
    }
    const auto x = [&](int64_t c) {
        return some({DType::f16, {2, c, 3, 5}, Layout::channels_last});
    };
    agree("concat", {int64_t{1}}, {x(8), x(3)});
}

TEST_F(CudaOps, ChangesLayouts) {
    for (const DType dtype : kOfEachSize)
        for (const Shape& shape : {Shape{2, 3, 5, 7},
                                   {1, 64, 33, 35},
                                   {3, 40, 9},
                                   {2, 4, 3, 3, 3},
                                   {0, 2, 3, 3},
                                   {4, 1, 8, 8}}) {
            const Values x = some({dtype, shape});
            agree("relayout", {std::string("channels_last")}, {x});
            agree("relayout", {std::string("row_major")},
                  {some({dtype, shape, Layout::channels_last})});
        }
}

TEST_F(CudaOps, MovesComplexNumbers) {
    const Values x = some({DType::c64, {3, 40, 35}});
    agree("transpose", {Ints{2, 0, 1}}, {x});
    agree("transpose", {Ints{0, 2, 1}}, {x});
    agree("broadcast_to", {Ints{4, 3, 5}}, {some({DType::c64, {3, 1}})});
    agree("real", {}, {x});
    agree("imag", {}, {x});
    agree("complex", {}, {some({DType::f32, {5, 33}}), some({DType::f32, {5, 33}})});
    agree("reduce_sum", {Ints{1}, int64_t{0}}, {x}, 1e-6);
    agree("reduce_sum", {Ints{0, 1, 2}, int64_t{1}}, {x}, 1e-6);
    agree("cumsum", {int64_t{1}, int64_t{0}, int64_t{0}}, {x});
}

TEST_F(CudaOps, Fills) {
    for (const char* dtype : {"float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8",
                              "uint16", "bool", "complex64"})
        for (const double value : {0.0, 1.0, 2.5, 77.0})
            for (const Shape& shape : {Shape{}, {0, 3}, {5, 7}, {64}})
                agree("full", {Ints(shape.begin(), shape.end()), value, std::string(dtype)}, {});
    agree("full", {Ints{5}, -0.0, std::string("float32")}, {});
    agree("full", {Ints{6}, -3.0, std::string("int16")}, {});
}

TEST_F(CudaOps, Pads) {
    for (const DType dtype : kOfEachSize)
        for (const char* mode : {"constant", "edge", "reflect"}) {
            const std::string text(mode);
            agree("pad", {Ints{1, 2}, Ints{3, 0}, text, 1.5}, {some({dtype, {5, 7}})});
            agree("pad", {Ints{0, 2, 1}, Ints{0, 1, 3}, text, 1.0}, {some({dtype, {3, 4, 5}})});
            if (!is_floating(dtype)) continue;
            if (text == "constant") continue;
            agree("pad_grad", {Ints{1, 2}, Ints{3, 0}, text}, {some({dtype, {9, 9}})});
            agree("pad_grad", {Ints{0, 2, 1}, Ints{0, 1, 3}, text}, {some({dtype, {3, 7, 9}})});
            agree("pad_grad", {Ints{4}, Ints{4}, text}, {some({dtype, {13}})});
        }
    agree("pad_grad", {Ints{3}, Ints{2}, std::string("edge")}, {some({DType::f32, {6}})});
    agree("pad", {Ints{2, 1}, Ints{0, 1}, std::string("constant"), 4.0},
          {some({DType::i32, {0, 2}})});
}

// --- places -------------------------------------------------------------------------------------

TEST_F(CudaOps, ReadsAndWritesAtIndices) {
    struct Case {
        Shape x;
        Ints axes;
        std::vector<Shape> index;
    };
    const std::vector<Case> cases = {{{6, 32}, {0}, {{9}}},
                                     {{6, 5}, {1}, {{40}}},
                                     {{50}, {0}, {{7, 3}}},
                                     {{4, 5, 6}, {0, 1}, {{3, 1}, {4}}},
                                     {{4, 5, 6}, {0, 2}, {{7}, {7}}},
                                     {{3, 4, 5, 6}, {1, 2}, {{2, 3}, {3}}},
                                     {{3, 4, 5, 6}, {0, 3}, {{2, 1}, {3}}},
                                     {{3, 4}, {0}, {{0}}},
                                     {{4, 0}, {0}, {{3}}},
                                     {{3, 2, 2}, {0, 1, 2}, {{}, {5}, {}}}};
    for (const DType dtype :
         {DType::f32, DType::f16, DType::bf16, DType::i8, DType::u16, DType::c64})
        for (const Case& c : cases) {
            const Values x = some({dtype, c.x});
            std::vector<Values> operands{x};
            for (size_t k = 0; k < c.axes.size(); ++k)
                operands.push_back(places(c.index[k], c.x[static_cast<int>(c.axes[k])]));
            agree("index_get", {c.axes}, operands);
            std::vector<Type> types;
            for (const Values& v : operands) types.push_back(v.type);
            const Attrs attrs{c.axes};
            operands.insert(operands.begin() + 1,
                            some(infer({find_op("index_get"), attrs, types})[0]));
            agree("index_set", {c.axes}, operands);
            agree("index_add", {c.axes}, operands);
        }
}

TEST_F(CudaOps, AddsManyTimesAtOnePlace) {
    agree("index_add", {Ints{0}},
          {some({DType::f32, {3, 17}}), some({DType::f32, {5000, 17}}), places({5000}, 3)});
    agree("index_set", {Ints{0}},
          {some({DType::f32, {3, 17}}), some({DType::f32, {5000, 17}}), places({5000}, 3)});
    agree("scatter_add", {int64_t{0}},
          {some({DType::bf16, {5, 4}}), places({3000, 4}, 5), some({DType::bf16, {3000, 4}})});
}

TEST_F(CudaOps, GathersAndScatters) {
    struct Case {
        Shape x, index;
        int64_t axis;
    };
    for (const DType dtype : {DType::f32, DType::f16, DType::i32, DType::u8, DType::c64})
        for (const Case& c : {Case{{6, 7, 5}, {6, 9, 5}, 1},
                              {{6, 7}, {3, 4}, 0},
                              {{9}, {30}, 0},
                              {{4, 5, 6}, {2, 5, 12}, -1},
                              {{4, 3}, {4, 0}, 1}}) {
            const int axis = normalize_axis(c.axis, c.x.rank(), "gather");
            const Values x = some({dtype, c.x}), index = places(c.index, c.x[axis]),
                         source = some({dtype, c.index});
            agree("gather", {c.axis}, {x, index});
            agree("scatter", {c.axis}, {x, index, source});
            agree("scatter_add", {c.axis}, {x, index, source});
            for (const char* mode : {"max", "min", "prod"})
                if (dtype != DType::c64)
                    agree("scatter_reduce", {c.axis, std::string(mode)}, {x, index, source});
        }
}

TEST_F(CudaOps, MakesPlaces) {
    agree("checked_index", {int64_t{1}, int64_t{9}, std::string("gather")}, {places({5, 40}, 9)});
    for (const int64_t axis : {0, 1, 2}) agree("coordinates", {Ints{4, 5, 6}, axis}, {});
    for (const DType label : {DType::i32, DType::u8, DType::i16})
        for (const char* dtype : {"int32", "float32", "float16", "bool", "complex64"})
            agree("one_hot", {int64_t{6}, std::string(dtype)},
                  {of({label, {2, 3}}, {0, 5, 3, 2, 2, 1})});
}

// The first of several wrong values is told, as on the CPU.
TEST_F(CudaOps, RefusesPlacesOutside) {
    const Values x = some({DType::f32, {4, 5}});
    const auto at = [&](const Floats& v) {
        return of({DType::i32, {static_cast<int64_t>(v.size())}}, v);
    };
    both_refuse("index_get", {Ints{1}}, {x, at({0, 5, 7})});
    both_refuse("index_get", {Ints{0, 1}}, {x, at({0, 1, 3}), at({0, -6, 9})});
    both_refuse("index_set", {Ints{0}}, {x, some({DType::f32, {2, 5}}), at({-5, 4})});
    both_refuse("index_add", {Ints{0}}, {x, some({DType::f32, {2, 5}}), at({1, 4})});
    const Values index = of({DType::i32, {1, 5}}, {0, 1, 2, 3, 4}),
                 source = some({DType::f32, {1, 5}});
    both_refuse("gather", {int64_t{0}}, {x, index});
    both_refuse("scatter", {int64_t{0}}, {x, index, source});
    both_refuse("scatter_add", {int64_t{0}}, {x, index, source});
    both_refuse("checked_index", {int64_t{1}, int64_t{3}, std::string("gather")},
                {at({-3, -4, 3})});
    both_refuse("one_hot", {int64_t{3}, std::string("float32")}, {at({0, 3, -1})});
    both_refuse("matinv", {}, {of({DType::f32, {2, 2, 2}}, {1, 2, 3, 4, 1, 2, 2, 4})});
    both_refuse("index_get", {Ints{0}}, {some({DType::f32, {0, 5}}), at({0})});
    both_refuse("index_add", {Ints{0}},
                {some({DType::f32, {0, 5}}), some({DType::f32, {1, 5}}), at({0})});
    agree("index_get", {Ints{1}}, {x, at({0, 4, -5})});  // the stream works as before
}

// --- order --------------------------------------------------------------------------------------

TEST_F(CudaOps, Sorts) {
    for (const DType dtype : kReal)
        for (const int64_t descending : {0, 1}) {
            agree("sort", {int64_t{-1}, descending}, {some({dtype, {7, 33}})});
            agree("sort", {int64_t{0}, descending}, {some({dtype, {50, 3}})});
            agree("topk", {int64_t{5}, int64_t{1}, descending}, {some({dtype, {3, 20, 4}})});
        }
    agree("sort", {int64_t{0}, int64_t{0}},
          {of({DType::f32, {8}}, {NAN, 1, -INFINITY, 0, -0.0, INFINITY, -NAN, 1})});
    agree("sort", {int64_t{0}, int64_t{1}}, {of({DType::f32, {5}}, {NAN, 1, -0.0, 0, 2})});
    agree("sort", {int64_t{0}, int64_t{0}}, {some({DType::f32, {0}})});
    agree("sort", {int64_t{0}, int64_t{0}}, {some({DType::i32, {1}})});
}

TEST_F(CudaOps, SortsLongRows) {
    for (const int64_t n : {2048, 2049, 4096, 10001})
        agree("sort", {int64_t{1}, int64_t{0}}, {some({DType::i8, {2, n}})});
    agree("topk", {int64_t{3000}, int64_t{0}, int64_t{1}}, {some({DType::f32, {7000, 2}})});
}

TEST_F(CudaOps, AddsUp) {
    for (const DType dtype : kReal)
        for (const int64_t exclusive : {0, 1})
            for (const int64_t reverse : {0, 1}) {
                agree("cumsum", {int64_t{1}, exclusive, reverse}, {some({dtype, {3, 1500}})});
                agree("cumsum", {int64_t{0}, exclusive, reverse}, {some({dtype, {40, 3}})});
            }
    agree("cumsum", {int64_t{0}, int64_t{0}, int64_t{0}}, {some({DType::f32, {40000}})});
    agree("cumsum", {int64_t{0}, int64_t{0}, int64_t{1}}, {some({DType::i32, {1000, 2}})});
    agree("cumsum", {int64_t{0}, int64_t{0}, int64_t{0}},
          {of({DType::f32, {4}}, {1, INFINITY, 2, NAN})});
}

// --- random numbers -----------------------------------------------------------------------------

TEST_F(CudaOps, DrawsTheSameNumbers) {
    for (const int64_t n : {0, 1, 4, 6, 1003}) {
        agree("random_uniform", {Ints{n}}, {key()});
        agree("random_normal", {Ints{n}}, {key()});
        agree("dropout_mask", {Ints{n}, 0.3}, {key()});
    }
    Floats wide;
    for (int i = 0; i < 400; ++i) wide.push_back(std::pow(10, i % 9 - 4));
    const Values a = of({DType::f32, {400}}, wide);
    std::reverse(wide.begin(), wide.end());
    const Values b = of({DType::f32, {400}}, wide);
    agree("random_gamma", {}, {key(), a, b});
    agree("random_beta", {}, {key(), a, b});
    agree("random_poisson", {}, {key(), a});
    const Values odd = of({DType::f32, {5}}, {0, -1, NAN, INFINITY, 1});
    agree("random_gamma", {}, {key(), odd, odd});
    agree("random_beta", {}, {key(), odd, odd});
    agree("random_poisson", {}, {key(), odd});
    agree("random_permutation", {int64_t{1000}}, {key()});
    const Values weights = of({DType::f32, {2, 4}}, {1, 0, 3, 2, 5, 1, 1, 1});
    agree("random_multinomial", {int64_t{20}, int64_t{1}}, {key(), weights});
    agree("random_multinomial", {int64_t{3}, int64_t{0}}, {key(), weights});
    both_refuse("random_multinomial", {int64_t{4}, int64_t{0}}, {key(), weights});
}

// --- windows ------------------------------------------------------------------------------------

TEST_F(CudaOps, Pools) {
    struct Case {
        Shape x;
        Ints kernel, stride, padding;
    };
    for (const DType dtype : kFloating)
        for (const Layout layout : {Layout::row_major, Layout::channels_last})
            for (const Case& c : {Case{{2, 3, 9, 8}, {3, 2}, {2, 1}, {1, 0}},
                                  {{1, 4, 7, 7}, {3, 3}, {1, 1}, {1, 1}},
                                  {{2, 2, 11}, {4}, {3}, {2}},
                                  {{1, 2, 4, 5, 6}, {2, 3, 2}, {2, 2, 1}, {1, 1, 0}}}) {
                const Attrs attrs{c.kernel, c.stride, c.padding};
                Values x = some({dtype, c.x, layout});
                store(x, 3, NAN);
                store(x, 4, NAN);
                std::vector<Type> types{x.type};
                const Type y = infer({find_op("max_pool"), attrs, types})[0];
                const Values dy = some(y);
                agree("max_pool", attrs, {x});
                agree("max_pool_grad", attrs, {x, dy});
                agree("max_pool_pick", attrs, {x, some(x.type)});
                const Ints extents(c.x.begin() + 2, c.x.end());
                for (const int64_t counts : {0, 1}) {
                    agree("avg_pool", {c.kernel, c.stride, c.padding, counts}, {x});
                    agree("avg_pool_grad", {c.kernel, c.stride, c.padding, counts, extents}, {dy});
                }
            }
}

TEST_F(CudaOps, PoolsEvenParts) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
        for (const int64_t out : {1, 3, 5, 9}) {
            const Values x = some({DType::f32, {2, 3, 7, 8}, layout}),
                         dy = some({DType::f32, {2, 3, out, 4}, layout});
            agree("adaptive_max_pool", {Ints{out, 4}}, {x});
            agree("adaptive_max_pool_grad", {Ints{out, 4}}, {x, dy});
            agree("adaptive_max_pool_pick", {Ints{out, 4}}, {x, some(x.type)});
            agree("adaptive_avg_pool", {Ints{out, 4}}, {x});
        }
    agree("adaptive_avg_pool_grad", {Ints{7, 8}}, {some({DType::f32, {2, 3, 3, 4}})});
}

TEST_F(CudaOps, ConvolvesIntegers) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
        for (const char* dtype : {"int8", "uint8", "float32"})
            for (const int64_t groups : {1, 2}) {
                const Values x = some({DType::u8, {2, 4, 6, 7}, layout}),
                             w = some({DType::i8, {6, 4 / groups, 3, 2}}),
                             one = of({DType::f32, {1}}, {0.02}), bias = some({DType::f32, {6}});
                const Values each = of({DType::f32, {6}}, {0.01, 0.02, 0.03, 0.04, 0.05, 0.06});
                agree("quantized_conv",
                      {Ints{2, 1}, Ints{1, 1}, Ints{1, 2}, groups, int64_t{0}, std::string(dtype)},
                      {x, w, one, bias});
                agree("quantized_conv",
                      {Ints{1}, Ints{0}, Ints{1}, groups, int64_t{1}, std::string(dtype)},
                      {x, w, each, bias});
            }
    agree("quantized_conv",
          {Ints{1}, Ints{1}, Ints{1}, int64_t{1}, int64_t{0}, std::string("int8")},
          {some({DType::i8, {1, 3, 20}}), some({DType::i8, {5, 3, 4}}),
           of({DType::f32, {1}}, {0.1}), some({DType::f32, {5}})});
}

// --- matrices and norms -------------------------------------------------------------------------

TEST_F(CudaOps, InvertsMatrices) {
    for (const Shape& shape : {Shape{1, 1}, {3, 3}, {4, 7, 7}, {2, 33, 33}, {0, 4, 4}})
        agree("matinv", {}, {some({DType::f32, shape})});
    agree("matinv", {}, {of({DType::f32, {2, 2}}, {0, 1, 1, 0})});
    agree("svd", {int64_t{0}}, {some({DType::f32, {2, 5, 3}})});
    agree("svd", {int64_t{1}}, {some({DType::f32, {3, 5}})});
}

TEST_F(CudaOps, MultipliesIntegers) {
    for (const DType dtype : {DType::i32, DType::i16, DType::i8, DType::u8, DType::u16}) {
        const auto x = [&](const Shape& shape) { return some({dtype, shape}); };
        agree("matmul", {int64_t{0}, int64_t{0}}, {x({5, 40}), x({40, 33})});
        agree("matmul", {int64_t{1}, int64_t{1}}, {x({2, 1, 7, 5}), x({3, 17, 7})});
        agree("matmul", {int64_t{0}, int64_t{1}}, {x({4, 3, 2}), x({4, 5, 2})});
    }
    agree("matmul", {int64_t{0}, int64_t{0}},
          {some({DType::i32, {3, 0}}), some({DType::i32, {0, 2}})});
}

// cuBLASLt does relu last: the plain product runs, and a kernel of the steps.
TEST_F(CudaOps, GeneratesTheStepsThatTheLibraryRefuses) {
    const Attrs attrs{int64_t{0}, int64_t{1}, std::string("relu bias add")};
    const std::vector<Values> inputs{some({DType::f32, {2, 5, 7}}), some({DType::f32, {6, 7}}),
                                     some({DType::f32, {6}}), some({DType::f32, {2, 5, 6}})};
    std::vector<Type> types;
    for (const Values& input : inputs) types.push_back(input.type);
    const OpCall call{find_op("matmul_epilogue"), attrs, types};
    std::string why;
    EXPECT_FALSE(product_kernel(dynamic_cast<CudaDevice&>(gpu()), call, infer(call), &why));
    EXPECT_NE(why, "");
    agree("matmul_epilogue", attrs, inputs, 1e-5);
}

TEST_F(CudaOps, Normalizes) {
    for (const DType dtype : kFloating) {
        const double tolerance = dtype == DType::f32   ? 1e-5
                                 : dtype == DType::f16 ? 0x1p-10
                                                       : 0x1p-7;
        for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
            const Type type{dtype, {3, 5, 6, 7}, layout};
            const Values x = some(type), scale = some({DType::f32, {5}}),
                         bias = some({DType::f32, {5}}), mean = some({DType::f32, {5}}),
                         var = of({DType::f32, {5}}, {1, 2, 0.5, 3, 9}), dy = some(type);
            agree("batch_norm", {1e-5}, {x, scale, bias}, tolerance);
            agree("batch_norm_stats", {}, {x}, tolerance);
            agree("batch_norm_grad", {1e-5}, {x, mean, var, scale, dy}, tolerance);
            agree("batch_norm_grad_sums", {1e-5}, {x, mean, var, dy}, tolerance);
        }
        for (const Shape& shape : {Shape{3, 50}, {1, 40000}, {9, 1}, {0, 4}})
            for (const char* op : {"softmax", "log_softmax"})
                agree(op, {int64_t{1}}, {some({dtype, shape})}, tolerance);
        for (const Shape& shape : {Shape{3, 50}, {2, 20000}, {4, 1}}) {
            const Values x = some({dtype, shape}), scale = some({DType::f32, {shape[1]}});
            const Values stats = of({DType::f32, {shape[0]}}, Floats(9, 0.5));
            agree("layer_norm", {int64_t{1}, 1e-3, int64_t{1}}, {x, scale, scale}, tolerance);
            agree("layer_norm_grad", {int64_t{1}, int64_t{1}}, {x, stats, stats, x, scale},
                  tolerance);
        }
        agree("layer_norm_grad", {int64_t{1}, int64_t{1}},
              {some({dtype, {0, 4}}), some({DType::f32, {0}}), some({DType::f32, {0}}),
               some({dtype, {0, 4}}), some({DType::f32, {4}})});
    }
}

// cuBLASLt takes a workspace at multiples of 256 bytes alone; so does what stands for it.
TEST_F(CudaOps, AProductRefusesAWorkspaceThatItsLibraryWouldRefuse) {
    const OpDef& op = find_op("matmul");
    const std::vector<Type> types{{DType::f32, {40, 30}}, {DType::f32, {30, 20}}};
    const Attrs attrs{int64_t{0}, int64_t{0}};
    const OpCall call{op, attrs, types};
    const auto product = gpu().prepare(call, infer(call));
    EXPECT_EQ(product->workspace_align(), 256u);
    if (product->workspace_bytes() == 0) GTEST_SKIP() << "a card's library may need none";
    const TensorRef memory = counted(gpu(), 100000);
    std::byte* start = static_cast<std::byte*>(memory->data());
    std::vector<void*> in{start, start + 8192}, out{start + 16384};
    EXPECT_NO_THROW(product->enqueue(gpu().stream(), in.data(), out.data(), start + 32768));
    EXPECT_THROW(product->enqueue(gpu().stream(), in.data(), out.data(), start + 32768 + 64),
                 DeviceError);
    gpu().stream().synchronize();
}

}}  // namespace megjit::cuda
