#include "device/vulkan/recorder.h"

#include <algorithm>

#include "base/error.h"

namespace vllm::vulkan {
namespace {

constexpr int kCommandsAtOnce = 256;                // a longer step starts to run while it is recorded
constexpr size_t kStagedAtOnce = size_t{16} << 20;  // bytes; likewise for weights
constexpr size_t kMostPending = 64;

}  // namespace

bool overlap(const Use& a, const Use& b) {
  const uint64_t a_end = a.address + (a.rows - 1) * a.stride + a.width,
                 b_end = b.address + (b.rows - 1) * b.stride + b.width;
  if (a_end <= b.address || b_end <= a.address) return false;
  if (a.stride != b.stride || a.rows == 1 || b.rows == 1) return true;
  // Columns of one matrix: b's rows start `shift` bytes behind the starts of a's.
  const uint64_t stride = a.stride;
  const uint64_t shift = (b.address % stride + stride - a.address % stride) % stride;
  return shift < a.width || shift + b.width > stride;
}

Recorder::Recorder(const Context& context, Memory& memory) : context_(context) {
  const DeviceFunctions& vk = context.vk();
  for (Frame& frame : frames_) {
    VkCommandPoolCreateInfo pool{};
    pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pool.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
    pool.queueFamilyIndex = context.gpu().compute_family;
    context.check(vk.vkCreateCommandPool(context.device(), &pool, nullptr, &frame.pool),
                  "making a command pool");
    VkCommandBufferAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = frame.pool;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    context.check(vk.vkAllocateCommandBuffers(context.device(), &info, &frame.commands),
                  "making a command buffer");
    VkFenceCreateInfo fence{};
    fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    context.check(vk.vkCreateFence(context.device(), &fence, nullptr, &frame.fence), "making a fence");
    frame.staging = std::make_unique<Arena>(memory);
  }
}

Recorder::~Recorder() {
  const DeviceFunctions& vk = context_.vk();
  vk.vkDeviceWaitIdle(context_.device());
  for (Frame& frame : frames_) {
    if (frame.fence) vk.vkDestroyFence(context_.device(), frame.fence, nullptr);
    if (frame.pool) vk.vkDestroyCommandPool(context_.device(), frame.pool, nullptr);
  }
}

VkCommandBuffer Recorder::commands() {
  Frame& frame = frames_[current_];
  context_.check_not_lost();
  if (open_) return frame.commands;
  const DeviceFunctions& vk = context_.vk();
  wait(frame.number);
  frame.staging->reset();
  context_.check(vk.vkResetCommandPool(context_.device(), frame.pool, 0), "resetting commands");
  VkCommandBufferBeginInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  context_.check(vk.vkBeginCommandBuffer(frame.commands, &info), "beginning commands");
  open_ = true;
  recorded_ = 0;
  bound_ = VK_NULL_HANDLE;
  barrier();  // against what the frames before left running
  return frame.commands;
}

void Recorder::barrier() {
  constexpr VkPipelineStageFlags kStages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                         VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  context_.vk().vkCmdPipelineBarrier(frames_[current_].commands, kStages, kStages, 0, 1, &memory, 0, nullptr,
                                     0, nullptr);
  pending_.clear();
}

void Recorder::order(std::span<const Use> uses) {
  const bool conflict = pending_.size() + uses.size() > kMostPending ||
                        std::any_of(pending_.begin(), pending_.end(), [&](const Use& before) {
                          return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
                            return (use.write || before.write) && overlap(before, use);
                          });
                        });
  if (conflict) barrier();
  pending_.insert(pending_.end(), uses.begin(), uses.end());
}

void Recorder::dispatch(VkPipeline pipeline, VkPipelineLayout layout, const void* parameters, size_t bytes,
                        const Groups& groups, std::span<const Use> uses) {
  if (groups.x == 0 || groups.y == 0 || groups.z == 0) return;
  const uint32_t* most = context_.gpu().max_group_count;
  if (groups.x > most[0] || groups.y > most[1] || groups.z > most[2])
    fail_runtime("A dispatch of %lld x %lld x %lld workgroups is more than the Vulkan device %s takes.",
                 static_cast<long long>(groups.x), static_cast<long long>(groups.y),
                 static_cast<long long>(groups.z), context_.gpu().name.c_str());
  const DeviceFunctions& vk = context_.vk();
  const VkCommandBuffer buffer = commands();
  order(uses);
  if (pipeline != bound_) vk.vkCmdBindPipeline(buffer, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  bound_ = pipeline;
  vk.vkCmdPushConstants(buffer, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(bytes),
                        parameters);
  vk.vkCmdDispatch(buffer, static_cast<uint32_t>(groups.x), static_cast<uint32_t>(groups.y),
                   static_cast<uint32_t>(groups.z));
  submit_if_many();
}

void Recorder::copy_rows(const Range& from, size_t from_stride, const Range& to, size_t to_stride,
                         size_t rows, size_t width) {
  if (rows == 0 || width == 0) return;
  const VkCommandBuffer buffer = commands();
  const Use uses[] = {{from.address, width, rows, from_stride, false},
                      {to.address, width, rows, to_stride, true}};
  order(uses);
  regions_.clear();
  for (size_t row = 0; row < rows; ++row)
    regions_.push_back({from.offset + row * from_stride, to.offset + row * to_stride, width});
  context_.vk().vkCmdCopyBuffer(buffer, from.buffer, to.buffer, static_cast<uint32_t>(rows), regions_.data());
  submit_if_many();
}

void Recorder::zero(const Range& range) {
  const VkCommandBuffer buffer = commands();
  const size_t bytes = (range.bytes + 3) / 4 * 4;  // ranges end at multiples of Memory::kAlignment
  if (bytes == 0) return;
  const Use use{range.address, bytes, 1, 0, true};
  order({&use, 1});
  context_.vk().vkCmdFillBuffer(buffer, range.buffer, range.offset, bytes, 0);
  submit_if_many();
}

Range Recorder::stage(size_t bytes) {
  commands();
  return frames_[current_].staging->take(bytes).part(0, bytes);
}

void Recorder::submit_if_many() {
  if (++recorded_ >= kCommandsAtOnce || frames_[current_].staging->taken() >= kStagedAtOnce) submit();
}

uint64_t Recorder::submit() {
  context_.check_not_lost();
  if (!open_) return submitted_;
  const DeviceFunctions& vk = context_.vk();
  Frame& frame = frames_[current_];
  // What the host reads after the fence.
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  vk.vkCmdPipelineBarrier(frame.commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                          &memory, 0, nullptr, 0, nullptr);
  open_ = false;
  context_.check(vk.vkEndCommandBuffer(frame.commands), "recording commands");
  context_.check(vk.vkResetFences(context_.device(), 1, &frame.fence), "resetting a fence");
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &frame.commands;
  context_.check(vk.vkQueueSubmit(context_.queue(), 1, &info, frame.fence), "submitting commands");
  frame.number = ++submitted_;
  current_ = (current_ + 1) % kFrames;
  return submitted_;
}

void Recorder::wait(uint64_t number) {
  if (number <= done_) return;
  context_.check_not_lost();
  for (const Frame& frame : frames_) {
    if (frame.number != number) continue;
    context_.check(context_.vk().vkWaitForFences(context_.device(), 1, &frame.fence, VK_TRUE, UINT64_MAX),
                   "computing a step");
  }
  done_ = number;
}

}  // namespace vllm::vulkan
