// Activation functions in double.
#pragma once
#include "device/device.h"

namespace vllm {

double activate(Activation act, double x);

}  // namespace vllm
