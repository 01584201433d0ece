// Commands in the order of the calls: recorded as they come, a barrier only between those that touch the same
// memory, submitted when asked to or when many have gathered.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "device/vulkan/arena.h"

namespace vllm::vulkan {

/// Memory that a command reads or writes: `rows` pieces of `width` bytes, `stride` bytes apart.
struct Use {
  uint64_t address = 0;
  uint64_t width = 0;
  uint64_t rows = 1;
  uint64_t stride = 0;
  bool write = false;
};

/// Whether the two have a byte in common.
bool overlap(const Use& a, const Use& b);

/// Workgroups of a dispatch.
struct Groups {
  int64_t x = 1, y = 1, z = 1;
};

class Recorder {
 public:
  Recorder(const Context& context, Memory& memory);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// `parameters` become the push constants.
  void dispatch(VkPipeline pipeline, VkPipelineLayout layout, const void* parameters, size_t bytes,
                const Groups& groups, std::span<const Use> uses);
  void copy(const Range& from, const Range& to) { copy_rows(from, 0, to, 0, 1, from.bytes); }
  /// Copies `rows` pieces of `width` bytes that are `from_stride` and `to_stride` bytes apart.
  void copy_rows(const Range& from, size_t from_stride, const Range& to, size_t to_stride, size_t rows,
                 size_t width);
  void zero(const Range& range);
  /// Host memory for the source of one copy, to be recorded next.
  Range stage(size_t bytes);

  /// What has been recorded starts to run. Returns its number, or that of the last submission.
  uint64_t submit();
  /// Waits until submission `number` and all before it have run.
  void wait(uint64_t number);
  /// Submits and waits for everything.
  void finish() { wait(submit()); }
  bool idle() const { return !open_ && done_ == submitted_; }

 private:
  /// One command buffer and the staging memory of its copies.
  struct Frame {
    VkCommandPool pool = VK_NULL_HANDLE;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkFence fence = VK_NULL_HANDLE;
    uint64_t number = 0;
    std::unique_ptr<Arena> staging;
  };
  static constexpr size_t kFrames = 4;

  VkCommandBuffer commands();
  void order(std::span<const Use> uses);
  void barrier();
  void submit_if_many();

  const Context& context_;
  std::array<Frame, kFrames> frames_;
  size_t current_ = 0;
  bool open_ = false;  // the current frame is being recorded
  int recorded_ = 0;   // commands in it
  VkPipeline bound_ = VK_NULL_HANDLE;
  std::vector<Use> pending_;  // since the last barrier
  std::vector<VkBufferCopy> regions_;
  uint64_t submitted_ = 0, done_ = 0;
};

}  // namespace vllm::vulkan
