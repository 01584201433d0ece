#include "device/vulkan/memory.h"

#include <algorithm>

#include "base/error.h"

namespace vllm::vulkan {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 20;

size_t rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + Memory::kAlignment - 1) / Memory::kAlignment * Memory::kAlignment;
}

}  // namespace

Memory::~Memory() {
  for (auto& block : blocks_) destroy(*block);
}

void Memory::fail_short(size_t bytes) const {
  fail_load(
      "A buffer of %.1f MiB was needed, but the Vulkan device %s has %.1f MiB free and allows %.1f MiB at "
      "once: %s.",
      static_cast<double>(bytes) / 1048576, context_.gpu().name.c_str(),
      static_cast<double>(context_.free_memory()) / 1048576,
      static_cast<double>(context_.gpu().max_allocation) / 1048576, kToNeedLess);
}

Range Memory::allocate(size_t bytes, MemoryKind kind) {
  if (bytes > context_.gpu().max_allocation) fail_short(bytes);
  const size_t size = rounded(bytes);
  Block* block = nullptr;
  std::map<size_t, size_t>::iterator gap;
  for (auto& candidate : blocks_) {
    if (candidate->kind != kind) continue;
    for (auto it = candidate->gaps.begin(); !block && it != candidate->gaps.end(); ++it)
      if (it->second >= size) block = candidate.get(), gap = it;
    if (block) break;
  }
  if (!block) {
    block = &add_block(size > kBlockBytes / 2 ? size : kBlockBytes, kind);
    gap = block->gaps.begin();
  }
  const auto [offset, available] = *gap;
  block->gaps.erase(gap);
  if (available > size) block->gaps[offset + size] = available - size;
  if (kind == MemoryKind::Device) used_ += size;
  return block->whole.part(offset, bytes);
}

void Memory::free(const Range& range) {
  const auto owner = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const auto& block) { return block->whole.buffer == range.buffer; });
  Block& block = **owner;
  size_t offset = static_cast<size_t>(range.offset), size = rounded(range.bytes);
  if (block.kind == MemoryKind::Device) used_ -= size;
  auto next = block.gaps.upper_bound(offset);
  if (next != block.gaps.begin()) {
    if (const auto before = std::prev(next); before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      block.gaps.erase(before);
    }
  }
  if (next != block.gaps.end() && offset + size == next->first) {
    size += next->second;
    block.gaps.erase(next);
  }
  block.gaps[offset] = size;
  if (size != block.whole.bytes) return;
  // One empty block of the common size is kept for the next allocation.
  const auto spare = [&](const auto& other) {
    return other.get() != &block && other->kind == block.kind && other->whole.bytes == kBlockBytes &&
           other->gaps.size() == 1 && other->gaps.begin()->second == kBlockBytes;
  };
  if (block.whole.bytes == kBlockBytes && std::none_of(blocks_.begin(), blocks_.end(), spare)) return;
  destroy(block);
  blocks_.erase(owner);
}

Memory::Block& Memory::add_block(size_t bytes, MemoryKind kind) {
  const DeviceFunctions& vk = context_.vk();
  if (kind == MemoryKind::Device && bytes > context_.free_memory()) fail_short(bytes);
  auto block = std::make_unique<Block>();
  block->kind = kind;
  block->memory = VK_NULL_HANDLE;
  block->whole.bytes = bytes;
  VkBufferCreateInfo buffer{};
  buffer.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  buffer.size = bytes;
  buffer.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  buffer.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
  context_.check(vk.vkCreateBuffer(context_.device(), &buffer, nullptr, &block->whole.buffer),
                 "making a buffer");
  try {
    VkMemoryRequirements needs{};
    vk.vkGetBufferMemoryRequirements(context_.device(), block->whole.buffer, &needs);
    VkMemoryAllocateFlagsInfo flags{};
    flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    info.pNext = &flags;
    info.allocationSize = needs.size;
    info.memoryTypeIndex = memory_type(needs.memoryTypeBits, kind);
    const VkResult result = vk.vkAllocateMemory(context_.device(), &info, nullptr, &block->memory);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) fail_short(bytes);
    context_.check(result, "allocating memory");
    context_.check(vk.vkBindBufferMemory(context_.device(), block->whole.buffer, block->memory, 0),
                   "binding memory");
    VkBufferDeviceAddressInfo address{};
    address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    address.buffer = block->whole.buffer;
    block->whole.address = vk.vkGetBufferDeviceAddress(context_.device(), &address);
    if (kind != MemoryKind::Device) {
      void* host = nullptr;
      context_.check(vk.vkMapMemory(context_.device(), block->memory, 0, VK_WHOLE_SIZE, 0, &host),
                     "mapping memory");
      block->whole.host = static_cast<std::byte*>(host);
    }
  } catch (...) {
    destroy(*block);
    throw;
  }
  block->gaps[0] = bytes;
  blocks_.push_back(std::move(block));
  return *blocks_.back();
}

uint32_t Memory::memory_type(uint32_t allowed, MemoryKind kind) const {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                  kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                          VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                  kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const VkPhysicalDeviceMemoryProperties& memory = context_.gpu().memory;
  const VkMemoryPropertyFlags needed = kind == MemoryKind::Device ? 0 : kHost;
  const VkMemoryPropertyFlags wanted = kind == MemoryKind::Device     ? kLocal
                                       : kind == MemoryKind::Readback ? kHost | kCached
                                                                      : kHost;
  for (const VkMemoryPropertyFlags flags : {wanted, needed})
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
      if (allowed >> i & 1 && (memory.memoryTypes[i].propertyFlags & flags) == flags) return i;
  fail_load("The Vulkan device %s has no memory of the kind that is needed.", context_.gpu().name.c_str());
}

void Memory::destroy(Block& block) {
  const DeviceFunctions& vk = context_.vk();
  vk.vkDestroyBuffer(context_.device(), block.whole.buffer, nullptr);
  vk.vkFreeMemory(context_.device(), block.memory, nullptr);
}

}  // namespace vllm::vulkan
