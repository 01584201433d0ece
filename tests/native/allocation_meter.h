// Counts the heap memory of the program it is included in: replaces the global operator new. One file a
// program.
#pragma once
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace vllm::test {

inline size_t live_bytes = 0;
inline size_t peak_bytes = 0;

/// Highest growth of the heap while `work` runs, in bytes. For programs of one thread.
size_t peak_growth(const auto& work) {
  const size_t before = live_bytes;
  peak_bytes = before;
  work();
  return peak_bytes - before;
}

}  // namespace vllm::test

__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(size);
  if (!memory) return nullptr;
  vllm::test::live_bytes += malloc_usable_size(memory);
  vllm::test::peak_bytes = std::max(vllm::test::peak_bytes, vllm::test::live_bytes);
  return memory;
}

__attribute__((noinline)) void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (!memory) throw std::bad_alloc();
  return memory;
}

__attribute__((noinline)) void operator delete(void* memory) noexcept {
  if (memory) vllm::test::live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
