// How shaders/product.glsl cuts a product of few rows into workgroups.
#pragma once
#include <cstdint>

namespace vllm::vulkan {

struct ProductForm {
  static constexpr uint32_t kGroup = 128;  // invocations
  uint32_t rows;                           // of a workgroup: ROWS of the shader
  uint32_t lanes;                          // invocations of an output: LANES
  int64_t groups_x, groups_y;

  /// More lanes make more workgroups, each of which loads x for fewer outputs: as many as fill a GPU.
  ProductForm(int64_t all_rows, int64_t most_rows, int64_t outputs) {
    constexpr int64_t kEnough = 512;  // workgroups
    const int64_t together = all_rows < most_rows ? all_rows : most_rows;
    rows = together > 4 ? 8 : together > 2 ? 4 : static_cast<uint32_t>(together);
    groups_y = (all_rows + rows - 1) / rows;
    lanes = 8;
    while (lanes < 32 && lanes < 64 / rows && outputs * lanes / kGroup * groups_y < kEnough) lanes *= 2;
    groups_x = (outputs * lanes + kGroup - 1) / kGroup;
  }
};

}  // namespace vllm::vulkan
