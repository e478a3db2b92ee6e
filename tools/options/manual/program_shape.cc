// Determines completable values from their names.
#include "tools/options/manual/program_shape.h"

#include <string_view>

namespace tools {

Completes completes(const OptionShape& option) {
  const std::string& value = option.positional ? option.names.front() : option.value;
  if (value == "DIR") return Completes::kFolders;
  bool files = option.positional && option.choices.empty();
  for (const std::string_view part : {"FILE", "PATH", "CKPT", "RUN", ".toml", ".jsonl"})
    files = files || value.find(part) != std::string::npos;
  if (option.choices.empty()) return files ? Completes::kFiles : Completes::kNothing;
  return files ? Completes::kWordsOrFiles : Completes::kWords;
}

}  // namespace tools
