// Points of the grids that the IQ formats of GGUF choose from. A word holds the numbers of the levels of a
// point's values, from the low bits up: 8 of two bits each (IQ1, IQ2) or 4 of three bits (IQ3).
#pragma once
#include <cstdint>

namespace vllm {

extern const uint16_t kIq1Grid[2048];
extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];

}  // namespace vllm
