// backends/cpu/kernels/random.inl -- words of Philox, and normal numbers made of them. See
// each_isa.h.

// Makes the words of `count` blocks from `first` on, separated by place in the block, so that the
// rounds vectorise.
void make_words(const runtime::Philox& g, uint64_t first, int64_t count,
                uint32_t (*words)[kBatch]) {
    uint32_t *w0 = words[0], *w1 = words[1], *w2 = words[2], *w3 = words[3];
    for (int64_t i = 0; i < count; ++i) {
        const runtime::Philox::Block b = g.block(first + static_cast<uint64_t>(i));
        w0[i] = b[0];
        w1[i] = b[1];
        w2[i] = b[2];
        w3[i] = b[3];
    }
}

void box_muller(const uint32_t* radius_words, const uint32_t* angle_words, int64_t n, float* a,
                float* b) {
    for (int64_t i = 0; i < n; ++i)
        runtime::normal_pair(radius_words[i], angle_words[i], a + i, b + i);
}
