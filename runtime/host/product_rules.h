// runtime/host/product_rules.h -- how a device's libraries may compute products (matrix products
// and convolutions), for the whole process. megengine.config sets the rules; code compiled before a
// change keeps the rules that it was compiled under.
#pragma once

namespace megjit::runtime {

struct alignas(4) ProductRules {  // each eager call reads it as one word
    bool tf32 = false;  // float32 on tensor cores: factors of 11 significant bits
    bool deterministic = false;  // the same bits in every run
    bool timed = false;  // the fastest algorithm that a library proposes is taken, not the first
    bool operator==(const ProductRules&) const = default;
};

ProductRules product_rules();
void set_product_rules(ProductRules rules);

}  // namespace megjit::runtime
