"""HTTP port of a service: health, metrics, the JSON API and the page. It runs in the admin process."""
