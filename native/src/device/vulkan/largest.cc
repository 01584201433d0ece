// What is read back of a row when its largest values are enough.
#include <cstring>

#include "device/checks.h"
#include "device/vulkan/vulkan_device.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128;
constexpr int64_t kSpan = 2048;  // values of a row that a workgroup looks at

}  // namespace

void VulkanDevice::read_largest(const Tensor& src, int count, RankedValue* dst) {
  checks::read_largest(src, count);
  if (src.rows == 0) return;
  static_assert(sizeof(RankedValue) == 8);
  const int64_t spans = (src.cols + kSpan - 1) / kSpan;
  const size_t row_bytes = static_cast<size_t>(count) * sizeof(RankedValue),
               rows = static_cast<size_t>(src.rows), out_bytes = rows * row_bytes;
  const Range memory = scratch(out_bytes * static_cast<size_t>(spans + 1));
  const Range out = memory.part(0, out_bytes), firsts = memory.part(out_bytes, memory.bytes - out_bytes);
  const auto use = [](const Range& range, bool write) {
    return Use{range.address, range.bytes, 1, 0, write};
  };
  const bool once = spans == 1;
  run(Shader::largest, {kGroup},
      parameters::Largest{address(src), once ? out.address : firsts.address, int32_t(src.cols),
                          int32_t(src.stride), int32_t(kSpan), count, 0},
      {spans, src.rows}, {reads(src), use(once ? out : firsts, true)});
  if (!once) {
    const auto pairs = static_cast<int32_t>(spans * count);
    run(Shader::largest, {kGroup},
        parameters::Largest{firsts.address, out.address, pairs, 2 * pairs, pairs, count, 1}, {1, src.rows},
        {use(firsts, false), use(out, true)});
  }
  read_back(out, out_bytes, 1, 0, dst);
}

}  // namespace vllm::vulkan
