"""Registration with name servers, and a check that the advertised address reaches the broker."""
