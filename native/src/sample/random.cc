#include "sample/random.h"

namespace vllm {

double uniform(uint64_t seed, uint64_t counter) {
  uint32_t word[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * word[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * word[2];
    word[0] = static_cast<uint32_t>(b >> 32) ^ word[1] ^ key[0];
    word[1] = static_cast<uint32_t>(b);
    word[2] = static_cast<uint32_t>(a >> 32) ^ word[3] ^ key[1];
    word[3] = static_cast<uint32_t>(a);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  const uint64_t bits = uint64_t{word[1]} << 32 | word[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace vllm
