#include "device/cpu/pack_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"

namespace vllm::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{256} << 20;  // address space; only what is written becomes memory

/// Handed out from the front and never twice, so all of it is still zero when handed out.
struct Region {
  uint8_t* mapped = nullptr;
  size_t mapped_bytes = 0;
  uint8_t* next = nullptr;
  uint8_t* end = nullptr;

  explicit Region(size_t bytes) {
    bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* const p = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    mapped = static_cast<uint8_t*>(p);
    mapped_bytes = bytes + kHugePage;
    next = mapped + (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage) % kHugePage;
    end = next + bytes;
    madvise(next, bytes, MADV_HUGEPAGE);
  }
  ~Region() {
    if (mapped) munmap(mapped, mapped_bytes);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  size_t left() const { return static_cast<size_t>(end - next); }
};

std::mutex mutex;
std::weak_ptr<Region> current;  // where the next weight goes if it fits

}  // namespace

PanelMemory::PanelMemory(size_t bytes) {
  if (bytes == 0) return;
  bytes = rounded(bytes);
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Region> region = current.lock();
  if (!region || region->left() < bytes) {
    region = std::make_shared<Region>(std::max(bytes, kRegion));
    if (!region->mapped && bytes < kRegion) region = std::make_shared<Region>(bytes);
    if (!region->mapped) fail_load("The %zu bytes of memory for a packed weight cannot be allocated.", bytes);
    current = region;
  }
  data_ = region->next;
  bytes_ = bytes;
  region->next += bytes;
  region_ = std::move(region);
}

}  // namespace vllm::cpu
