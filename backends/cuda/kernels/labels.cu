// backends/cuda/kernels/labels.cu -- ops that need only places: checked ones, coordinates, and
// one-hot rows.

#if EXTENT
extern "C" __global__ void check(i64 lowest, i64 extent, INDEX count, const i32* index, i32* y,
                                 Fault* fault) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const i32 place = index[i];
        const bool good = place >= lowest && place < extent;
        if (!good) tell(fault, 0, i, place);
        y[i] = good ? (i32)(place < 0 ? place + extent : place) : 0;
    }
}

extern "C" __global__ void coordinates(i64 length, i64 inner, INDEX count, i32* y) {
    for (INDEX i = first_thread(); i < count; i += all_threads())
        y[i] = (i32)(i / (INDEX)inner % (INDEX)length);
}
#else
extern "C" __global__ void one_hot(i64 classes, INDEX count, const LABEL* labels, T one, T zero, T* y,
                                   Fault* fault) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const INDEX row = i / (INDEX)classes;
        const i64 at = (i64)(i - row * (INDEX)classes), label = widen(labels[row]);
        if (at == 0 && (label < 0 || label >= classes)) tell(fault, 0, row, (i32)label);
        y[i] = at == label ? one : zero;
    }
}
#endif
