// Functions of f32 to about 1e-7 of their value, written without fma(), which some drivers rearrange.
#ifndef MATH_GLSL
#define MATH_GLSL
#include "common.glsl"

float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }  // -126 <= n <= 127

/// e^x: 2^n times the series of the rest; 1 at 0, infinity above 88.8, NaN at NaN.
float exp_(float x) {
  if (is_nan(x)) return x;
  precise const float bounded = clamp(x, -110.0, 100.0);
  precise const float n = floor(bounded * 1.44269504 + 0.5);
  precise const float r = (bounded - n * 0.693359375) + n * 2.12194440e-4;  // ln 2 in two parts
  precise float sum = 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  const int whole = int(n), half_ = whole / 2;
  return sum * power_of_two(half_) * power_of_two(whole - half_);
}

/// ln(1 + x) for x >= 0.
float log1p_(float x) {
  // ln u = 2 artanh((u - 1) / (u + 1)), for u near 1.
  float exponent = 0.0;
  precise float s;
  if (x < 0.5) {
    s = x / (2.0 + x);
  } else {
    precise const float u = 1.0 + x;
    const uint bits = floatBitsToUint(u);
    const int e = int((bits + 0x004afb0du) >> 23) - 127;  // the rest is in [sqrt(1/2), sqrt(2))
    const float rest = uintBitsToFloat(bits - (uint(e) << 23));
    exponent = float(e);
    s = (rest - 1.0) / (rest + 1.0);
  }
  precise const float z = s * s;
  precise float sum = 2.0 / 11.0;
  sum = sum * z + 2.0 / 9.0;
  sum = sum * z + 2.0 / 7.0;
  sum = sum * z + 2.0 / 5.0;
  sum = sum * z + 2.0 / 3.0;
  precise const float value = exponent * 0.693147181 + (sum * z * s + 2.0 * s);
  return value;
}

float tanh_(float x) {
  const float size = abs(x);
  if (size < 0.625) {
    // x - x^3/3 + ..., coefficients fitted to the interval (Cephes, tanhf).
    precise const float z = x * x;
    precise float sum = -5.70498872745e-3;
    sum = sum * z + 2.06390887954e-2;
    sum = sum * z + -5.37397155531e-2;
    sum = sum * z + 1.33314422036e-1;
    sum = sum * z + -3.33332819422e-1;
    precise const float value = sum * z * x + x;
    return value;
  }
  if (is_nan(x)) return x;
  const float result = size > 20.0 ? 1.0 : 1.0 - 2.0 / (exp_(2.0 * size) + 1.0);
  return x < 0.0 ? -result : result;
}

float sigmoid(float x) { return 1.0 / (1.0 + exp_(-x)); }

float softplus(float x) { return x > 20.0 ? x : log1p_(exp_(x)); }

/// Activation of device.h.
float activate(int activation, float x) {
  if (activation == 0) return x / (1.0 + exp_(-x));
  if (activation == 1) {
    precise const float u = 0.797884561 * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp_(-2.0 * u));
  }
  return sigmoid(x);
}

#endif
