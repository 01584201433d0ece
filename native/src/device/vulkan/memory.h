// Device memory: ranges of a few large blocks, each block one allocation of the driver with one buffer over
// all of it.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "device/vulkan/context.h"

namespace vllm::vulkan {

enum class MemoryKind : uint8_t {
  Device,    // fast for shaders
  Upload,    // written by the host
  Readback,  // read by the host
};

/// A range of memory. `address` is what shaders read it by; `host` is null for MemoryKind::Device.
struct Range {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceSize offset = 0;  // in `buffer`
  size_t bytes = 0;
  uint64_t address = 0;
  std::byte* host = nullptr;

  Range part(size_t first, size_t count) const {
    return {buffer, offset + first, count, address + first, host ? host + first : nullptr};
  }
};

class Memory {
 public:
  explicit Memory(const Context& context) : context_(context) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Of undefined content, aligned to kAlignment. Throws Error(ModelLoad) with what was needed and what is
  /// there when memory is short.
  Range allocate(size_t bytes, MemoryKind kind);
  /// No command that uses the range may be recorded or running.
  void free(const Range& range);
  /// Bytes of device memory in use.
  size_t used() const { return used_; }

  static constexpr size_t kAlignment = 256;

 private:
  struct Block {
    MemoryKind kind;
    VkDeviceMemory memory;
    Range whole;
    std::map<size_t, size_t> gaps;  // free ranges, offset to bytes
  };

  Block& add_block(size_t bytes, MemoryKind kind);
  uint32_t memory_type(uint32_t allowed, MemoryKind kind) const;
  void destroy(Block& block);
  [[noreturn]] void fail_short(size_t bytes) const;

  const Context& context_;
  std::vector<std::unique_ptr<Block>> blocks_;
  size_t used_ = 0;
};

}  // namespace vllm::vulkan
