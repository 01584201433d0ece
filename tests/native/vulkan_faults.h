// What vulkan_faults_layer.cc does to those who use Vulkan through it, exported by it as `vulkan_faults`.
#pragma once
#include <atomic>

/// How many more calls succeed; negative: all.
struct VulkanFaults {
  std::atomic<int> submits{-1};        // then the device is lost, by vkQueueSubmit
  std::atomic<int> waits{-1};          // then it is lost, by vkWaitForFences
  std::atomic<int> allocations{-1};    // then vkAllocateMemory is out of device memory
  std::atomic<int> short_submits{-1};  // then vkQueueSubmit is
  std::atomic<int> dispatches{-1};     // then vkCmdDispatch does nothing, and says nothing
  std::atomic<int> opens{-1};          // then vkCreateDevice fails
  std::atomic<bool> discrete{false};   // devices say that they are GPUs with memory of their own
  std::atomic<bool> old{false};        // devices say that they have Vulkan 1.1
  std::atomic<int> lost{0};            // devices lost so far
  std::atomic<size_t> heap{0};         // bytes that devices say each of their heaps has; 0: what they do
  std::atomic<size_t> buffer{0};       // bytes that devices say they allow at once; 0: what they do

  void none() {
    submits = waits = allocations = short_submits = dispatches = opens = -1;
    buffer = heap = 0;
    discrete = old = false;
  }
};
