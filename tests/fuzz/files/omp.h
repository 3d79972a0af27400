// OpenMP of one thread, for clang comes without one: pragmas are ignored, and this answers.
#pragma once

inline int omp_get_thread_num() { return 0; }
inline int omp_get_max_threads() { return 1; }
inline int omp_in_parallel() { return 0; }
inline void omp_set_num_threads(int) {}
