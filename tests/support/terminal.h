// The real program with a terminal as its standard output.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace test_support {

struct TerminalResult {
  int exit_code = -1;  // 128 + N when killed by signal N
  std::string text;    // as the terminal got it; "" where this machine has no terminals
};

// Runs engine_binary() on a terminal of so many columns, 0: it does not tell, with the given
// variables added to the environment. It is killed after a minute.
TerminalResult engine_on_terminal(std::vector<std::string> arguments, unsigned short columns = 0,
                                  const std::map<std::string, std::string>& environment = {});

}  // namespace test_support
