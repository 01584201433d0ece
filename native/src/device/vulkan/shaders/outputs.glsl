// How the kernels of products with few rows divide their outputs: a workgroup computes OUTPUTS outputs of ROWS rows,
// LANES invocations share an output.
//
// Specialization constants: 2 ROWS (1, 2, 4 or 8), 3 LANES (a power of two from ROWS to 64 / ROWS and from GROUP / 16
// on).
#ifndef OUTPUTS_GLSL
#define OUTPUTS_GLSL
layout(constant_id = 2) const int ROWS = 1;
layout(constant_id = 3) const int LANES = 8;

const int kMaxRows = 8, kMaxOutputs = 16;
#define OUTPUTS (GROUP / LANES)

/// Of the output and the row that this invocation returns, if LANE < ROWS * OUTPUTS.
int result_row() { return LANE / OUTPUTS; }
int result_output() { return LANE % OUTPUTS; }

#endif
