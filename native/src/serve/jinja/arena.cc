#include "serve/jinja/arena.h"

#include <algorithm>

#include "base/error.h"

namespace vllm::jinja {

namespace {
constexpr size_t kFirstChunk = size_t{16} << 10;
constexpr size_t kLargestChunk = size_t{4} << 20;
}  // namespace

void Arena::grow(size_t bytes) {
  const size_t usual = std::min(kFirstChunk << std::min<size_t>(chunks_.size(), 8), kLargestChunk);
  const size_t size = std::max(bytes, usual);
  if (bytes > limit_ || used_ + size > limit_) {
    fail_argument("The chat template needs more than the %zu MiB of memory that are allowed.", limit_ >> 20);
  }
  chunks_.push_back(std::make_unique_for_overwrite<char[]>(size));
  used_ += size;
  next_ = chunks_.back().get();
  end_ = next_ + size;
}

std::string_view Arena::concatenate(std::string_view left, std::string_view right) {
  const size_t size = left.size() + right.size();
  const bool newest = !left.empty() && left.data() + left.size() == text_end_ && next_ == text_next_;
  char* out = const_cast<char*>(left.data());
  if (!newest || right.size() > static_cast<size_t>(end_ - text_end_)) {
    const size_t room = size + size / 2 + 8;  // a text that grew once may grow again
    if (newest && room > static_cast<size_t>(end_ - next_)) grow(room);
    out = static_cast<char*>(allocate(size));
    if (!left.empty()) std::memcpy(out, left.data(), left.size());
  }
  if (!right.empty()) std::memcpy(out + left.size(), right.data(), right.size());
  text_end_ = out + size;
  const size_t over = static_cast<size_t>(text_end_ - chunks_.back().get()) & 7;
  text_next_ = next_ = std::min(text_end_ + (over == 0 ? 0 : 8 - over), end_);
  return {out, size};
}

}  // namespace vllm::jinja
