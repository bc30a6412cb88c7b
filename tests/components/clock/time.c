// A time server. Days are counted from 1970-01-01 in the proleptic Gregorian calendar.
#include <stdio.h>
#include <time.h>

#include "clock.h"

typedef exports_example_clock_time_civil_t civil;

// What the generated code wants from an object file that is not made here.
void __component_type_object_force_link_clock(void) {}

static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

static bool is_leap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

static int days_in(int64_t year, int month) {
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && is_leap(year) ? 29 : days[month - 1];
}

// Years begin in March, so that the leap day is the last; 400 of them are an era.
static int64_t days_from_civil(int64_t year, int month, int day) {
  year -= month <= 2;
  int64_t era = (year >= 0 ? year : year - 399) / 400;
  int64_t of_era = year - era * 400;
  int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool civil_from_unix(int64_t seconds, civil *at) {
  // Years that four digits can write.
  if (seconds < -62167219200 || seconds > 253402300799) return false;
  int64_t days = seconds / 86400, rest = seconds % 86400;
  if (rest < 0) rest += 86400, days--;
  days += 719468;
  int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  int64_t of_era = days - era * 146097;
  int64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  int64_t of_year = of_era - (365 * years + years / 4 - years / 100);
  int64_t month = (5 * of_year + 2) / 153;
  at->day = (uint8_t)(of_year - (153 * month + 2) / 5 + 1);
  at->month = (uint8_t)(month < 10 ? month + 3 : month - 9);
  at->year = (int32_t)(years + era * 400 + (at->month <= 2));
  at->hour = (uint8_t)(rest / 3600);
  at->minute = (uint8_t)(rest / 60 % 60);
  at->second = (uint8_t)(rest % 60);
  return true;
}

static bool check(const civil *at, clock_string_t *error) {
  bool valid = at->year >= 0 && at->year <= 9999 && at->month >= 1 && at->month <= 12 && at->day >= 1 &&
               at->day <= days_in(at->year, at->month) && at->hour < 24 && at->minute < 60 && at->second < 60;
  if (!valid) clock_string_dup(error, "there is no such time");
  return valid;
}

static int64_t days_of(const civil *at) { return days_from_civil(at->year, at->month, at->day); }

static int64_t unix_of(const civil *at) { return days_of(at) * 86400 + at->hour * 3600 + at->minute * 60 + at->second; }

static int weekday_of(const civil *at) { return (int)(((days_of(at) + 4) % 7 + 7) % 7); }

void exports_example_clock_time_now(civil *now) { civil_from_unix(time(NULL), now); }

bool exports_example_clock_time_from_unix(int64_t seconds, civil *at, clock_string_t *error) {
  if (civil_from_unix(seconds, at)) return true;
  clock_string_dup(error, "outside the years 0 to 9999");
  return false;
}

bool exports_example_clock_time_to_unix(civil *at, int64_t *seconds, clock_string_t *error) {
  if (!check(at, error)) return false;
  *seconds = unix_of(at);
  return true;
}

bool exports_example_clock_time_add_seconds(civil *at, int64_t seconds, civil *later, clock_string_t *error) {
  int64_t sum;
  if (!check(at, error)) return false;
  if (!__builtin_add_overflow(unix_of(at), seconds, &sum) && civil_from_unix(sum, later)) return true;
  clock_string_dup(error, "outside the years 0 to 9999");
  return false;
}

bool exports_example_clock_time_format(civil *at, exports_example_clock_time_style_t style, clock_string_t *text,
                                       clock_string_t *error) {
  if (!check(at, error)) return false;
  char line[64];
  if (style == EXPORTS_EXAMPLE_CLOCK_TIME_STYLE_DATE)
    snprintf(line, sizeof line, "%04d-%02d-%02d", at->year, at->month, at->day);
  else if (style == EXPORTS_EXAMPLE_CLOCK_TIME_STYLE_ISO8601)
    snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02dZ", at->year, at->month, at->day, at->hour, at->minute, at->second);
  else
    snprintf(line, sizeof line, "%.3s, %02d %s %04d %02d:%02d:%02d +0000", weekdays[weekday_of(at)], at->day,
             months[at->month - 1], at->year, at->hour, at->minute, at->second);
  clock_string_dup(text, line);
  return true;
}

bool exports_example_clock_time_about(civil *at, exports_example_clock_time_parts_t parts,
                                      exports_example_clock_time_facts_t *facts, clock_string_t *error) {
  if (!check(at, error)) return false;
  *facts = (exports_example_clock_time_facts_t){
      .weekday.is_some = parts & EXPORTS_EXAMPLE_CLOCK_TIME_PARTS_WEEKDAY,
      .day_of_year.is_some = parts & EXPORTS_EXAMPLE_CLOCK_TIME_PARTS_DAY_OF_YEAR,
      .day_of_year.val = (uint16_t)(days_of(at) - days_from_civil(at->year, 1, 1) + 1),
      .leap_year.is_some = parts & EXPORTS_EXAMPLE_CLOCK_TIME_PARTS_LEAP_YEAR,
      .leap_year.val = is_leap(at->year),
  };
  if (facts->weekday.is_some) clock_string_dup(&facts->weekday.val, weekdays[weekday_of(at)]);
  return true;
}
