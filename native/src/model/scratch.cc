#include "base/error.h"
#include "model/sublayer.h"

namespace vllm {

void Scratch::reserve(Device& device, int64_t rows, int64_t cols) {
  buffer_.reset();
  buffer_ = device.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
}

Tensor Scratch::take(int64_t rows, int64_t cols) {
  const Tensor out{buffer_.get(), used_, rows, cols, cols};
  used_ += rows * padded(cols);
  if (static_cast<size_t>(used_) * sizeof(float) > buffer_->bytes())
    fail_runtime("a sublayer took more scratch than it asked for");
  return out;
}

}  // namespace vllm
