// Files may differ in form, or by tokens that were added: only ids that both have count.
#include "tools/run/choices/tokenizer_check.h"

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/tokenizer/tokenizer.h"

namespace tools {

std::string tokenizer_difference(const std::string& data, const std::string& tokenizer,
                                 const std::string& model) {
  const std::string path = data + "/tokenizer.json";
  try {
    const std::string text = tokenizer.empty() ? "" : io::read_stored_tokenizer(data);
    if (text.empty() || text == tokenizer) return "";
    const io::Tokenizer of_data = io::Tokenizer::parse(text, path),
                        of_model = io::Tokenizer::parse(tokenizer, model);
    const auto id = of_data.first_difference(of_model);
    if (!id) return "";
    const auto shown = [&](const io::Tokenizer& from) {
      return "'" + base::escape_text(from.decode({&*id, 1})) + "'";
    };
    return path + ": token " + std::to_string(*id) + " is " + shown(of_data) +
           ", and in the tokenizer of " + model + " " + shown(of_model) +
           "; expected tokens of the model's tokenizer";
  } catch (const io::Error&) {
    return "";  // check_tokenizer() names what is wrong with it
  }
}

}  // namespace tools
