// Compares the tokenizer of token files with the one that a model was trained with.
#pragma once

#include <string>

namespace tools {

// Returns a line for the user if the tokenizer.json in `data`, a folder, gives an id another text
// than `tokenizer`, the text of `model`'s tokenizer.json, does; "" if they agree, and if one of
// them is missing or not read.
std::string tokenizer_difference(const std::string& data, const std::string& tokenizer,
                                 const std::string& model);

}  // namespace tools
