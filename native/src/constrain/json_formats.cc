#include "constrain/json_formats.h"

namespace vllm {
namespace {

// RFC 3339; the day fits the month, and February has 29 days in any year.
#define VLLM_DATE                                                                                            \
  "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|[" \
  "12]\\d))"
#define VLLM_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:(?:[0-5]\\d|60)(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define VLLM_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define VLLM_IPV4 VLLM_OCTET "(?:\\." VLLM_OCTET "){3}"
#define VLLM_HEX "[0-9a-fA-F]"
#define VLLM_H16 VLLM_HEX "{1,4}"
#define VLLM_LS32 "(?:" VLLM_H16 ":" VLLM_H16 "|" VLLM_IPV4 ")"
// RFC 3986, IPv6address.
#define VLLM_IPV6                                                                                            \
  "(?:(?:" VLLM_H16 ":){6}" VLLM_LS32 "|::(?:" VLLM_H16 ":){5}" VLLM_LS32 "|(?:" VLLM_H16 ")?::(?:" VLLM_H16 \
  ":){4}" VLLM_LS32 "|(?:(?:" VLLM_H16 ":){0,1}" VLLM_H16 ")?::(?:" VLLM_H16 ":){3}" VLLM_LS32               \
  "|(?:(?:" VLLM_H16 ":){0,2}" VLLM_H16 ")?::(?:" VLLM_H16 ":){2}" VLLM_LS32 "|(?:(?:" VLLM_H16              \
  ":){0,3}" VLLM_H16 ")?::" VLLM_H16 ":" VLLM_LS32 "|(?:(?:" VLLM_H16 ":){0,4}" VLLM_H16 ")?::" VLLM_LS32    \
  "|(?:(?:" VLLM_H16 ":){0,5}" VLLM_H16 ")?::" VLLM_H16 "|(?:(?:" VLLM_H16 ":){0,6}" VLLM_H16 ")?::)"
#define VLLM_LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define VLLM_ATEXT "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]"
// RFC 3986, appendix A. A host of four numbers is a registered name as well.
#define VLLM_URI_PLAIN "a-zA-Z0-9._~!$&'()*+,;=-"
#define VLLM_URI_ESCAPE "%" VLLM_HEX "{2}"
#define VLLM_URI_PCHAR "(?:[:@" VLLM_URI_PLAIN "]|" VLLM_URI_ESCAPE ")"
#define VLLM_URI_SEGMENTS "(?:/" VLLM_URI_PCHAR "*)*"
#define VLLM_URI_AUTHORITY                                                                   \
  "(?:(?:[:" VLLM_URI_PLAIN "]|" VLLM_URI_ESCAPE ")*@)?(?:\\[(?:" VLLM_IPV6 "|[vV]" VLLM_HEX \
  "+\\.[:" VLLM_URI_PLAIN "]+)\\]|(?:[" VLLM_URI_PLAIN "]|" VLLM_URI_ESCAPE ")*)(?::\\d*)?"
#define VLLM_URI_REST "(?:[/?:@" VLLM_URI_PLAIN "]|" VLLM_URI_ESCAPE ")*"

struct Format {
  std::string_view name;
  std::string_view pattern;
};

constexpr Format kFormats[] = {
    {"date", "^" VLLM_DATE "$"},
    {"time", "^" VLLM_TIME "$"},
    {"date-time", "^" VLLM_DATE "[Tt]" VLLM_TIME "$"},
    // RFC 3339, appendix A.
    {"duration",
     "^P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:"
     "\\d+S)?|"
     "\\d+S))?|T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))$"},
    {"uuid", "^" VLLM_HEX "{8}-" VLLM_HEX "{4}-" VLLM_HEX "{4}-" VLLM_HEX "{4}-" VLLM_HEX "{12}$"},
    {"ipv4", "^" VLLM_IPV4 "$"},
    {"ipv6", "^" VLLM_IPV6 "$"},
    {"email", "^" VLLM_ATEXT "+(?:\\." VLLM_ATEXT "+)*@" VLLM_LABEL "(?:\\." VLLM_LABEL ")*$"},
    {"hostname", "^" VLLM_LABEL "(?:\\." VLLM_LABEL ")*$"},
    {"uri", "^[a-zA-Z][a-zA-Z0-9+.-]*:(?://" VLLM_URI_AUTHORITY VLLM_URI_SEGMENTS "|/(?:" VLLM_URI_PCHAR
            "+" VLLM_URI_SEGMENTS ")?|" VLLM_URI_PCHAR "+" VLLM_URI_SEGMENTS ")?(?:\\?" VLLM_URI_REST
            ")?(?:#" VLLM_URI_REST ")?$"},
};

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return std::nullopt;
}

}  // namespace vllm
