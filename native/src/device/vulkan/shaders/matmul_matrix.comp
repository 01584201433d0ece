#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#define MATRIX_UNITS
#include "matmul_half.glsl"
