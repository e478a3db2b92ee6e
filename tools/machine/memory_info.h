// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tools {

// What the kernel says is available, free swap included, or less where a control group (version 2,
// or 1) has a limit: what is left of it, counting files in memory as free. Nothing where the kernel
// does not tell. `root` stands for / in tests.
std::optional<std::uint64_t> available_memory(const std::string& root = "");

std::string gib_text(std::uint64_t bytes);  // "12.3 GiB"; "0.04 GiB" below a tenth

}  // namespace tools
