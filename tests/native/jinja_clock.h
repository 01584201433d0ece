// The time that templates of the fixtures see.
#pragma once
#include <ctime>

/// 2024-07-26 09:05:03, a Friday: the clock of the fixtures.
inline std::tm fixture_clock() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 3;
  now.tm_wday = 5;
  now.tm_yday = 207;
  return now;
}
