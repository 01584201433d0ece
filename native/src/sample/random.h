// The random stream of a request.
#pragma once
#include <cstdint>

namespace vllm {

/// Counter-based uniform draw in [0, 1): depends on its arguments alone, so that a request's draws do not
/// depend on the batch it is in. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
/// 2011) with `seed` as the key and `counter` as the low half of the counter; the top 53 bits of its first
/// two words.
double uniform(uint64_t seed, uint64_t counter);

}  // namespace vllm
