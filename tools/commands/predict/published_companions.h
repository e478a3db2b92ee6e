// Writes the files that belong to an exported text model of Hugging Face, besides its weights.
#pragma once

#include <string>

#include "models/publish.h"

namespace tools {

// Writes to `folder` the tokenizer, "" if there is none, and the files of it and of generation that
// `begun_from`, the folder of Hugging Face that the training began with, has. Returns a line for
// the user if that folder is gone, "" otherwise. `of_published`: the training began with one.
// Throws io::Error.
std::string write_companions(const std::string& folder, const std::string& tokenizer_json,
                             const models::PublishedFiles& files, const std::string& begun_from,
                             bool of_published);

}  // namespace tools
