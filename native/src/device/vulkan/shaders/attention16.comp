#version 450
#extension GL_GOOGLE_include_directive : require
#define STORAGE16
#include "attention.glsl"
