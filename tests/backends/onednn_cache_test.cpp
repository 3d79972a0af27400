// oneDNN's own cache of primitives is off.
#include <dnnl.hpp>

#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

// oneDNN makes descriptors of primitives that it has cached. Those of brgconv_1x1 pointed into the
// descriptor of an executable that was gone: results were wrong, or the process crashed.
TEST(OneDnnCache, NoDescriptorComesFromAPrimitiveOfAnotherExecutable) {
    run("matmul_epilogue", {random(Shape{4, 8}, 1), random(Shape{8, 3}, 2)},
        {int64_t{0}, int64_t{0}, std::string("relu")});
    EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 0);
}

}}  // namespace megjit::testing
