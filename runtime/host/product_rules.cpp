#include "runtime/host/product_rules.h"

#include <atomic>

namespace megjit::runtime {
namespace {

std::atomic<ProductRules>& current() {
    static std::atomic<ProductRules> rules{ProductRules{}};
    return rules;
}

}  // namespace

ProductRules product_rules() { return current().load(std::memory_order_relaxed); }
void set_product_rules(ProductRules rules) { current().store(rules, std::memory_order_relaxed); }

}  // namespace megjit::runtime
