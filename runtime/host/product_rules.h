// runtime/host/product_rules.h -- how a device's libraries may compute products (matrix products
// and convolutions), for the whole process. megengine.config sets it; what was compiled before
// keeps the rules that it was compiled under.
#pragma once

namespace megjit::runtime {

struct alignas(4) ProductRules {  // read at each eager call: one word
    bool tf32 = false;  // float32 on tensor cores: factors of 11 significant bits
    bool deterministic = false;  // the same bits in every run
    bool timed = false;  // of what a library proposes the fastest is taken, not the first
    bool operator==(const ProductRules&) const = default;
};

ProductRules product_rules();
void set_product_rules(ProductRules rules);

}  // namespace megjit::runtime
