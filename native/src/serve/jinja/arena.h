// Memory of one render: handed out in order, given back all at once. What lives in it needs no destructor, so
// values may refer to each other in any way and nesting costs no stack when they go.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

namespace vllm::jinja {

class Arena {
 public:
  explicit Arena(size_t limit) : limit_(limit) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Aligned to 8 bytes. Throws Error(InvalidArgument) when all allocations together exceed the limit.
  void* allocate(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > static_cast<size_t>(end_ - next_)) grow(bytes);
    void* out = next_;
    next_ += bytes;
    return out;
  }

  template <typename T>
  T* allocate_array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  template <typename T>
  T* make(const T& value) {
    return new (allocate_array<T>(1)) T(value);
  }

  /// `left` followed by `right`. When `left` is the newest text, `right` is put behind it in place.
  std::string_view concatenate(std::string_view left, std::string_view right);

 private:
  void grow(size_t bytes);

  size_t limit_;
  size_t used_ = 0;
  char* next_ = nullptr;
  char* end_ = nullptr;
  char* text_end_ = nullptr;   // end of the newest text made by concatenate
  char* text_next_ = nullptr;  // next_ behind that text
  std::vector<std::unique_ptr<char[]>> chunks_;
};

}  // namespace vllm::jinja
