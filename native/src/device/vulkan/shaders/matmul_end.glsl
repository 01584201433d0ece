// How the kernels of a product with one matrix end.
#ifndef MATMUL_END_GLSL
#define MATMUL_END_GLSL
PARAMETERS(Matmul);

/// out[row][output] (+)= scale * sum + bias, if there is such a row and output.
void put(float sum, int row, int output_) {
  if (row >= p.rows || output_ >= p.weight_rows) return;
  precise float value = sum;
  if (p.scale_kind != 0) value *= p.scale.at[p.scale_kind == 1 ? 0 : output_];
  if (p.has_bias != 0) value += p.bias.at[output_];
  const int at = row * p.out_stride + output_;
  if (p.accumulate != 0) value += p.out_.at[at];
  p.out_.at[at] = value;
}

#endif
