// Settings on which a rank of a simulated job does not agree with the others.
#pragma once

#include <cstdint>
#include <string>

#include "backends/store/protocol/settings.h"

namespace simulation {

struct Contradiction {
  backends::Settings usual, others;
  std::string text;  // that all are told, with "here" and "there" for who has which
};

Contradiction contradiction(std::uint64_t kind);

}  // namespace simulation
