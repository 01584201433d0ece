#include "device/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "device/cpu/machine.h"

namespace vllm {
namespace {

constexpr size_t kMapFrom = 1 << 20;
constexpr size_t kHugePage = 2 << 20;

[[noreturn]] void fail_memory(size_t needed) {
  fail_load("A buffer of %.1f MiB was needed, but only %.1f MiB of memory are available.",
            static_cast<double>(needed) / 1048576, static_cast<double>(cpu::available_memory()) / 1048576);
}

}  // namespace

HostBuffer::HostBuffer(size_t bytes) : bytes_(bytes), mapped_(bytes >= kMapFrom) {
  if (mapped_) {
    if (bytes > cpu::available_memory()) fail_memory(bytes);
    void* data =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) fail_memory(bytes);
    if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(data);
  } else {
    const size_t rounded = (bytes + 64) / 64 * 64;
    data_ = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
    if (!data_) fail_memory(bytes);
    std::memset(data_, 0, rounded);
  }
}

HostBuffer::~HostBuffer() {
  if (mapped_) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
}

}  // namespace vllm
