// What every shader starts with.
//
// Conventions
//   Files        NAME.comp is one kernel; *.glsl are included. NAME becomes Shader::NAME (pipelines.h), its
//                SPIR-V is made and checked by the build; nothing else lists it.
//   Parameters   `PARAMETERS(Struct)` declares the push constants `p` with a struct of parameters.h, which C++
//                includes too. At most 128 bytes. There are no descriptors: buffers are addresses, typed
//                Floats (f32), Words (u32) or Ints (i32), aligned to 4 bytes, Vectors (4 f32) or Quads (4 u32),
//                aligned to 16; p.x.at[i] is element i, i an int below 2^31. From one type to another they go
//                as uvec2: some drivers do not know the direct way. An address that a flag switches off may be
//                anything.
//   Constants    Specialization constant 0 is the size of the workgroup, always one-dimensional (GROUP);
//                1 and up belong to the shader, whose first lines say what they are. Weight formats are
//                constant FORMAT (enum Format of base/formats.h).
//   Grids        x counts what is many (columns, outputs), y rows, z what is left. The host checks the counts
//                against the device's limits.
//   Shared       at most kMaxGroup invocations and 16 KiB. Subgroups may have any size and are not used, but by
//                *_matrix.
//   Features     a kernel needs Vulkan 1.2 and no more, but for *_dot (integer_dot of gpu.h), *16 (storage16),
//                halve and *_half (float16) and *_matrix (cooperative_matrix).
//   Order        a result depends on its row alone: sums run in an order that is fixed by the columns, never
//                by the number of rows. Values that end in memory are `precise`, which keeps * and + as they
//                are written; it does not reach into fma(), whose parts a driver may rearrange among
//                constants. Sums of products use fma(), in the same form in all kernels of an operation.
//   Numbers      exp, tanh and others come from math.glsl: GLSL's own are too coarse. NaN and infinity are
//                told by their bits (is_nan, is_finite), which compilers leave alone.
//
// A new kernel: NAME.comp, its struct in parameters.h, and a call of VulkanDevice::run() in the operation.
#ifndef COMMON_GLSL
#define COMMON_GLSL
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
#define GROUP (int(gl_WorkGroupSize.x))
#define LANE (int(gl_LocalInvocationID.x))
const int kMaxGroup = 256;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vectors { vec4 at[]; };

#include "parameters.h"

#define PARAMETERS(Struct) layout(push_constant, std430) uniform Push { Struct p; }

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < 0x7f800000u; }
float infinity() { return uintBitsToFloat(0x7f800000u); }

#endif
