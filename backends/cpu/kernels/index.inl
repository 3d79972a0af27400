// backends/cpu/kernels/index.inl -- the check of places. See each_isa.h.

// Is every place in [low, extent)?
bool all_within(const int32_t* index, int64_t n, int64_t low, int64_t extent) {
    const auto first = static_cast<int32_t>(low);
    const auto end = static_cast<int32_t>(std::min<int64_t>(extent, INT32_MAX));
    int bad = 0;
    for (int64_t i = 0; i < n; ++i) bad |= (index[i] < first) | (index[i] >= end);
    return !bad;
}
