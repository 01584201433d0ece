// Memory that the host writes and commands read, given out piece by piece and taken back as a whole.
#pragma once
#include <vector>

#include "device/vulkan/memory.h"

namespace vllm::vulkan {

class Arena {
 public:
  explicit Arena(Memory& memory) : memory_(memory) {}
  ~Arena() {
    for (const Range& chunk : chunks_) memory_.free(chunk);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Of undefined content, aligned to 16 bytes.
  Range take(size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    while (at_ < chunks_.size() && used_ + bytes > chunks_[at_].bytes) ++at_, used_ = 0;
    if (at_ == chunks_.size())
      chunks_.push_back(memory_.allocate(bytes > kChunkBytes ? bytes : kChunkBytes, MemoryKind::Upload));
    const Range out = chunks_[at_].part(used_, bytes);
    used_ += bytes;
    taken_ += bytes;
    return out;
  }
  size_t taken() const { return taken_; }
  /// Everything that was taken is free again. A few chunks of the common size are kept.
  void reset() {
    while (!chunks_.empty() && (chunks_.size() > kKeptChunks || chunks_.back().bytes > kChunkBytes)) {
      memory_.free(chunks_.back());
      chunks_.pop_back();
    }
    at_ = used_ = taken_ = 0;
  }

 private:
  static constexpr size_t kChunkBytes = size_t{4} << 20, kKeptChunks = 4;

  Memory& memory_;
  std::vector<Range> chunks_;
  size_t at_ = 0, used_ = 0;  // chunk that is being given out, bytes of it that are
  size_t taken_ = 0;
};

}  // namespace vllm::vulkan
