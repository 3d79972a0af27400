// backends/cuda/kernels/attention_gradients.cu -- the gradients of attention, after attention.cu or
// attention_tensor.cu: `add_tile` adds the contribution of a tile of queries and keys to a block's
// result.

// Where the gradients go, and how many units of the launch compute those of queries and of keys.
struct Results {
    T *dq, *dk, *dv;
    u32 query_units, key_units;
};

__device__ __forceinline__ void sum_over_keys(Shared& shared, const Attention& p, u32 number, const Operands& o,
                                              T* dq) {
    const Unit unit(number, p.queries, p.width, p.is_causal);
    const T* const keys = row_of(o.k, p.k, key_head_of(p, unit.head), p.key_heads, 0) + unit.column;
    const u32 end = end_of_keys(p, unit.row, unit.rows);
    Sums sums;
    for (u32 key = 0; key < end; key += kTile) {
        add_tile<true, true>(sums, shared, p, o, unit.head, unit.row, key, keys + (u64)key * p.k.row, p.k.row,
                             least(kTile, p.keys - key), unit.columns);
    }
    sums.store(row_of(dq, p.dq, unit.head, p.heads, unit.row) + unit.column, p.dq.row, unit.rows, unit.columns);
}

// dk sums the gradient of the products times the queries, dv the probabilities times dy; both go
// over all heads that share the keys.
template <bool of_products>
__device__ __forceinline__ void sum_over_queries(Shared& shared, const Attention& p, u32 number, const Operands& o,
                                                 T* to) {
    const u32 width = of_products ? p.width : p.value_width, heads = p.heads / p.key_heads;
    const T* const from = of_products ? o.q : o.dy;
    const View &view = of_products ? p.q : p.dy, &made = of_products ? p.dk : p.dv;
    const Unit unit(number, p.keys, width, false);
    Sums sums;
    for (u64 head = unit.head * heads; head < (unit.head + 1) * heads; ++head)
        for (u32 query = p.is_causal ? unit.row : 0; query < p.queries; query += kTile) {
            add_tile<of_products, false>(sums, shared, p, o, head, query, unit.row,
                                         row_of(from, view, head, p.heads, query) + unit.column, view.row,
                                         least(kTile, p.queries - query), unit.columns);
        }
    sums.store(row_of(to, made, unit.head, p.key_heads, unit.row) + unit.column, made.row, unit.rows, unit.columns);
}

// The gradients of queries, keys and values are units of one launch, in this order.
extern "C" __global__ void __launch_bounds__(kThreads, 2) gradients(Attention p, u32 units, Operands o, Results to) {
    __shared__ Shared shared;
    const u32 first_value = to.query_units + to.key_units;
    for (u32 number = blockIdx.x; number < units; number += gridDim.x) {
        if (number < to.query_units) sum_over_keys(shared, p, number, o, to.dq);
        else if (number < first_value) sum_over_queries<true>(shared, p, number - to.query_units, o, to.dk);
        else sum_over_queries<false>(shared, p, number - first_value, o, to.dv);
    }
}
